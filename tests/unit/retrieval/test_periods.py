"""Words of time: what is a period, and which days it has."""

from datetime import date, timedelta

import pytest
from hypothesis import given, strategies as st

from rag_app.domain import Period, Question, day_of, days_text
from rag_app.retrieval import periods
from rag_app.retrieval.filters import condition
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import LANGUAGES, conditions_of, find_period, find_periods, period_of

SUNDAY = "2026-11-22"
"""The day of the cases that name none: the last of its week."""


def table(text: str) -> list[tuple[str, ...]]:
    return [tuple(cell.strip() for cell in line.split("|")) for line in text.strip().splitlines()]


def days(text: str, today: str, language: str) -> str:
    found = find_period(text, date.fromisoformat(today), [language])
    return f"{found.start or ''}..{found.end or ''}" if found else "none"


ENGLISH = table("""
What is booked today?                                     | 2026-11-22..2026-11-22
total sales May 2026                                      | 2026-05-01..2026-05-31
May 2026 total sales                                      | 2026-05-01..2026-05-31
How is the May 2026 newsletter called?                    | none
the second dearest booking of January                     | 2026-01-01..2026-01-31
the minutes of January                                    | none
the total price of January 2026 without tips              | 2026-01-01..2026-01-31
what share of September's revenue                         | 2026-09-01..2026-09-30
What is May's number?                                     | none
sales in the first half of 2025                           | 2025-01-01..2025-06-30
sales H2 2025                                             | 2025-07-01..2025-12-31
sales in the third half of 2025                           | none
the orders from 2024                                      | 2024-01-01..2024-12-31
What did we take in March and April 2026 together?        | 2026-03-01..2026-04-30
What came since the start of September?                   | 2026-09-01..2026-11-22
the orders from 2024 on                                   | 2024-01-01..
From February 2026 on, what came in?                      | 2026-02-01..
cars from the years 1975 to 1977                          | 1975-01-01..1977-12-31
cars in the years 1975 and 1976                           | 1975-01-01..1976-12-31
cars in the years 1975 and 1977                           | none
the wettest year out of 2012, 2013 and 2014               | 2012-01-01..2014-12-31
who came on 5 and 6 January 2026                          | 2026-01-05..2026-01-06
rain from March through May 2014                          | 2014-03-01..2014-05-31
rain in March-May 2014                                    | 2014-03-01..2014-05-31
What came in at the end of 2024?                          | none
late calls per year, 2012 to 2015?                        | 2012-01-01..2015-12-31
part 2012 to 2015 of the series                           | none
calls from the beginning of March to the end of June 2024 | 2024-03-01..2024-06-30
Anything on for tomorrow, Monday?                         | 2026-11-23..2026-11-23
Anything on for tomorrow, Sunday?                         | none
anybody in on Valentine's Day, 14 February 2026?          | 2026-02-14..2026-02-14
What came in in the fall of 2024?                         | none
Who called on Christmas Day 2024?                         | 2024-12-25..2024-12-25
calls New Year's Eve 2024                                 | 2024-12-31..2024-12-31
Who called on Christmas Eve?                              | 2025-12-24..2025-12-24
gifts for Christmas Eve                                   | none
the cars before 1972                                      | ..1971-12-31
orders after March 2026                                   | 2026-04-01..2026-11-22
What came after January?                                  | none
How many wet days did 2014 have?                          | 2014-01-01..2014-12-31
the last call in January - what was it about?             | 2026-01-01..2026-01-31
sales May 2024 vs May 2025                                | none
How many calls in July last year?                         | 2025-07-01..2025-07-31
Who called yesterday?                                     | 2026-11-21..2026-11-21
Is anybody booked tomorrow?                               | 2026-11-23..2026-11-23
Who came the day before yesterday?                        | 2026-11-20..2026-11-20
Which bookings do we have next month and later?           | 2026-12-01..
Who came between 19 and 25 October?                       | 2026-10-19..2026-10-25
Who came in the week from 19 to 25 January 2026?          | 2026-01-19..2026-01-25
What services did customers book this week?               | 2026-11-16..2026-11-22
What services did customers book last week?               | 2026-11-09..2026-11-15
What is planned for next week?                            | 2026-11-23..2026-11-29
this week's bookings                                      | 2026-11-16..2026-11-22
Who complained last month?                                | 2026-10-01..2026-10-31
How many calls in the past month?                         | 2026-10-01..2026-10-31
How many orders this year?                                | 2026-01-01..2026-12-31
Which orders came in last year?                           | 2025-01-01..2025-12-31
Sales this quarter?                                       | 2026-10-01..2026-12-31
Sales last quarter?                                       | 2026-07-01..2026-09-30
Who is coming this weekend?                               | 2026-11-21..2026-11-22
How did it sell over the last year?                       | 2025-11-23..2026-11-22
Who called within the past week?                          | 2026-11-16..2026-11-22
How many calls in the last 30 days?                       | 2026-10-24..2026-11-22
How many calls in the last two weeks?                     | 2026-11-09..2026-11-22
How many appointments in the next 7 days?                 | 2026-11-23..2026-11-29
Which alerts came in the last three months?               | 2026-08-23..2026-11-22
Which customers did we refund in January?                 | 2026-01-01..2026-01-31
Which customers did we refund in November?                | 2026-11-01..2026-11-30
Which customers did we refund in December?                | 2025-12-01..2025-12-31
Who will come in December?                                | 2026-12-01..2026-12-31
Who called in January 2025?                               | 2025-01-01..2025-01-31
How many January bookings were there?                     | 2026-01-01..2026-01-31
How many calls last January?                              | 2026-01-01..2026-01-31
What is planned next March?                               | 2027-03-01..2027-03-31
What was booked on 27 January?                            | 2026-01-27..2026-01-27
What was booked on January 27th?                          | 2026-01-27..2026-01-27
What was booked on the 3rd of January 2026?               | 2026-01-03..2026-01-03
What was booked on 2026-01-08?                            | 2026-01-08..2026-01-08
What was booked on Jan 8?                                 | 2026-01-08..2026-01-08
Which calls came on Wednesday, 14 January?                | 2026-01-14..2026-01-14
Who called on the 14th?                                   | 2026-11-14..2026-11-14
How many days of December 2013 were wet?                  | 2013-12-01..2013-12-31
Which day of December 2013 was the wettest?                | 2013-12-01..2013-12-31
What fired in the last week of January?                   | 2026-01-25..2026-01-31
Sales in the first half of October?                       | 2026-10-01..2026-10-15
What is booked on 5 December?                             | 2026-12-05..2026-12-05
What was booked on 5 December?                            | 2025-12-05..2025-12-05
Which customers called on Wednesday, 14 January 2026?     | 2026-01-14..2026-01-14
What was booked on Tuesday?                               | 2026-11-17..2026-11-17
What did she say last Tuesday?                            | 2026-11-17..2026-11-17
Who comes next Tuesday?                                   | 2026-11-24..2026-11-24
Who will come on Tuesday?                                 | 2026-11-24..2026-11-24
What was booked on Tuesday last week?                     | 2026-11-10..2026-11-10
How many calls since Monday?                              | 2026-11-16..2026-11-22
How many calls since Christmas?                           | 2025-12-25..2026-11-22
How many calls since Easter?                              | 2026-04-05..2026-11-22
How many calls since 3 January 2026?                      | 2026-01-03..2026-11-22
How many calls since last month?                          | 2026-10-01..2026-11-22
How many bookings between 3 and 9 January?                | 2026-01-03..2026-01-09
How many bookings from 3 to 9 January 2026?               | 2026-01-03..2026-01-09
How many bookings 3-9 January?                            | 2026-01-03..2026-01-09
How many bookings between 29 December and 4 January?      | 2025-12-29..2026-01-04
How many bookings from Monday to Wednesday?               | 2026-11-16..2026-11-18
How did demand move from June to January?                 | 2025-06-01..2026-01-31
How many bookings between 2026-01-05 and 2026-01-11?      | 2026-01-05..2026-01-11
How many orders in Q4?                                    | 2026-10-01..2026-12-31
How many orders in Q1 2025?                               | 2025-01-01..2025-03-31
How many orders in the third quarter?                     | 2026-07-01..2026-09-30
How many orders in 2025?                                  | 2025-01-01..2025-12-31
Which bookings were made before 9 January 2026?           | ..2026-01-08
Which bookings were made until 9 January 2026?            | ..2026-01-09
Which bookings were made after 9 January 2026?            | 2026-01-10..2026-11-22
How busy was the week of 14 January?                      | 2026-01-12..2026-01-18
How busy was the week starting Monday, 12 January?        | 2026-01-12..2026-01-18
Who called two days ago?                                  | 2026-11-20..2026-11-20
In January this year, who called?                         | 2026-01-01..2026-01-31
What does the January newsletter say?                     | none
What did the Q3 report say?                               | none
What are your opening hours on Sundays?                   | none
Are you open on Sunday?                                   | none
How long does next day delivery take?                     | none
May I return it within 30 days?                           | none
We sat in the second row. May we move?                    | none
May 15 year olds climb alone?                             | none
May 15-year-olds climb alone?                             | none
I ordered it three weeks ago, it wobbles. What do I pay?  | none
What gifts sell at Christmas?                             | none
Compare this week with last week.                         | none
What costs 2026 euros?                                    | none
What does the March of the penguins cost?                 | none
Does it march on Tuesdays?                                | none
What is my last name?                                     | none
What was booked on 31 February 2026?                      | none
Who lived here 1990-2010 in Room 2025?                    | none
How many pages has the 2026 roadmap?                      | none
""")
FRENCH = table("""
Qui a appelé aujourd'hui ?                        | 2026-11-22..2026-11-22
Qui a appelé hier ?                               | 2026-11-21..2026-11-21
Qui vient demain ?                                | 2026-11-23..2026-11-23
Combien d'appels cette semaine ?                  | 2026-11-16..2026-11-22
Combien d'appels la semaine dernière ?            | 2026-11-09..2026-11-15
Combien de rendez-vous la semaine prochaine ?     | 2026-11-23..2026-11-29
Combien d'appels le mois dernier ?                | 2026-10-01..2026-10-31
Combien d'appels ce mois-ci ?                     | 2026-11-01..2026-11-30
Combien de commandes cette année ?                | 2026-01-01..2026-12-31
Combien de commandes l'année dernière ?           | 2025-01-01..2025-12-31
Combien d'appels ces 30 derniers jours ?          | 2026-10-24..2026-11-22
Combien d'appels en janvier ?                     | 2026-01-01..2026-01-31
Combien d'appels en août 2025 ?                   | 2025-08-01..2025-08-31
Qui est venu le 27 janvier ?                      | 2026-01-27..2026-01-27
Qui est venu le 1er mars 2026 ?                   | 2026-03-01..2026-03-01
Qui est venu mardi dernier ?                      | 2026-11-17..2026-11-17
Qui vient mardi prochain ?                        | 2026-11-24..2026-11-24
Combien d'appels depuis Noël ?                    | 2025-12-25..2026-11-22
Combien d'appels depuis lundi ?                   | 2026-11-16..2026-11-22
Combien d'appels entre le 3 et le 9 janvier ?     | 2026-01-03..2026-01-09
Combien d'appels du 3 au 9 janvier 2026 ?         | 2026-01-03..2026-01-09
Combien de ventes au deuxième trimestre 2026 ?    | 2026-04-01..2026-06-30
Combien d'appels la semaine du 14 janvier 2026 ?  | 2026-01-12..2026-01-18
Que dit la lettre de janvier ?                    | none
Êtes-vous ouverts le dimanche ?                   | none
Quel est le prix du menu ?                        | none
""")
GERMAN = table("""
Wer hat heute angerufen?                          | 2026-11-22..2026-11-22
Wer hat gestern angerufen?                        | 2026-11-21..2026-11-21
Wer kommt morgen?                                 | 2026-11-23..2026-11-23
Wer hat am Morgen Dienst?                         | none
Wie viele Anrufe gab es diese Woche?              | 2026-11-16..2026-11-22
Wie viele Anrufe gab es letzte Woche?             | 2026-11-09..2026-11-15
Wie viele Anrufe gab es im letzten Monat?         | 2026-10-01..2026-10-31
Was ist nächste Woche geplant?                    | 2026-11-23..2026-11-29
Wie viele Bestellungen gab es dieses Jahr?        | 2026-01-01..2026-12-31
Wie viele Anrufe in den letzten 30 Tagen?         | 2026-10-24..2026-11-22
Wie viele Anrufe gab es im Januar?                | 2026-01-01..2026-01-31
Wie viele Anrufe gab es im März 2025?             | 2025-03-01..2025-03-31
Wer kam am 27. Januar?                            | 2026-01-27..2026-01-27
Wer kam am 27.01.2026?                            | 2026-01-27..2026-01-27
Wer kam letzten Dienstag?                         | 2026-11-17..2026-11-17
Wer kommt nächsten Dienstag?                      | 2026-11-24..2026-11-24
Wie viele Anrufe seit Weihnachten?                | 2025-12-25..2026-11-22
Wie viele Anrufe seit Montag?                     | 2026-11-16..2026-11-22
Wie viele Anrufe zwischen dem 3. und 9. Januar?   | 2026-01-03..2026-01-09
Wie viele Anrufe vom 3. bis zum 9. Januar 2026?   | 2026-01-03..2026-01-09
Wer hat vor 3 Tagen angerufen?                    | 2026-11-19..2026-11-19
Haben Sie am Sonntag geöffnet?                    | none
Was steht im Q3-Bericht?                          | none
""")


@pytest.mark.parametrize(("text", "expected"), ENGLISH)
def test_in_english(text: str, expected: str) -> None:
    assert days(text, SUNDAY, "en") == expected


@pytest.mark.parametrize(("text", "expected"), FRENCH)
def test_in_french(text: str, expected: str) -> None:
    assert days(text, SUNDAY, "fr") == expected


@pytest.mark.parametrize(("text", "expected"), GERMAN)
def test_in_german(text: str, expected: str) -> None:
    assert days(text, SUNDAY, "de") == expected


SATURDAY = "2026-01-24"
DAYS = {
    "en": table("""
    calls since the 12th                               | 2026-01-12..2026-01-24
    calls since the 31st                               | 2025-12-31..2026-01-24
    calls since 5 February                             | 2025-02-05..2026-01-24
    Who called from the 6th to the 8th?                | 2026-01-06..2026-01-08
    Who called between the 6th and 8th?                | 2026-01-06..2026-01-08
    Who called from the 29th to the 4th?               | 2025-12-29..2026-01-04
    Who called between Friday 9th and Sunday 11th January? | 2026-01-09..2026-01-11
    Who was called on the 5th and the 6th?             | 2026-01-05..2026-01-06
    bookings the 8th - 10th                            | 2026-01-08..2026-01-10
    calls up to the 15th                               | ..2026-01-15
    calls before the 10th                              | ..2026-01-09
    calls by the 10th                                  | ..2026-01-10
    calls by 9 January                                 | ..2026-01-09
    calls after the 10th                               | 2026-01-11..2026-01-24
    calls on the 10th of last month                    | 2025-12-10..2025-12-10
    calls on sat the 10th                              | 2026-01-10..2026-01-10
    calls fri 9th                                      | 2026-01-09..2026-01-09
    calls w/c 5 Jan                                    | 2026-01-05..2026-01-11
    calls wc 5 January                                 | 2026-01-05..2026-01-11
    calls jan 5-8                                      | 2026-01-05..2026-01-08
    calls from January 5 to 8, 2025                    | 2025-01-05..2025-01-08
    calls between Jan 5th and 8th                      | 2026-01-05..2026-01-08
    calls Jan 5 and 6                                  | 2026-01-05..2026-01-06
    calls Jan 5 and 8                                  | none
    calls 28 Dec - 3 Jan                               | 2025-12-28..2026-01-03
    calls 2026-01-05 to 2026-01-08                     | 2026-01-05..2026-01-08
    calls monday to wednesday last week                | 2026-01-12..2026-01-14
    Friday and Saturday last week                      | 2026-01-16..2026-01-17
    last week Monday to Wednesday                      | 2026-01-12..2026-01-14
    last week, from Monday to Wednesday                | 2026-01-12..2026-01-14
    last week on Tuesday                               | 2026-01-13..2026-01-13
    calls from Tuesday to Thursday this week           | 2026-01-20..2026-01-22
    calls on Friday and Saturday                       | 2026-01-23..2026-01-24
    calls on Monday or Tuesday                         | none
    calls last Monday and Tuesday                      | 2026-01-19..2026-01-20
    Which bookings are on Monday?                      | 2026-01-26..2026-01-26
    who's in on Tuesday                                | 2026-01-27..2026-01-27
    what have we got on Monday                         | 2026-01-26..2026-01-26
    Who was in on Monday?                              | 2026-01-19..2026-01-19
    calls next Friday to Sunday                        | 2026-01-30..2026-02-01
    prices Monday to Friday                            | none
    Are you open Friday and Saturday?                  | none
    calls Mon, Tue and Wed last week                   | 2026-01-12..2026-01-14
    calls on Monday, Tuesday and Wednesday             | 2026-01-19..2026-01-21
    calls on monday the week before last               | 2026-01-05..2026-01-05
    next week's Monday                                 | 2026-01-26..2026-01-26
    bookings today and tomorrow                        | 2026-01-24..2026-01-25
    bookings tomorrow and Monday                       | none
    bookings from today until Friday                   | 2026-01-24..2026-01-30
    calls from the 10th onwards                        | 2026-01-10..
    calls on the 5th, 6th and 7th                      | 2026-02-05..2026-02-07
    calls on 5 & 6 January                             | 2026-01-05..2026-01-06
    calls on 5 or 6 January                            | none
    calls on 5, 6 and 7 January                        | none
    calls week ending 11 January                       | 2026-01-05..2026-01-11
    calls before today                                 | ..2026-01-23
    calls before last week                             | ..2026-01-11
    calls after last Monday                            | 2026-01-20..2026-01-24
    calls the week before last week                    | 2026-01-05..2026-01-11
    calls the day before 5 January                     | 2026-01-04..2026-01-04
    calls two days before 5 January                    | none
    calls fri last week                                | 2026-01-16..2026-01-16
    calls on Tuesday last month                        | none
    calls on the 10th last week                        | 2026-01-12..2026-01-18
    calls from the 5th of January till the 8th         | 2026-01-05..2026-01-08
    calls from 29 Dec to the 4th                       | 2025-12-29..2026-01-04
    calls from 1 January to now                        | 2026-01-01..2026-01-24
    bookings between now and Friday                    | 2026-01-24..2026-01-30
    bookings from tomorrow                             | 2026-01-25..
    bookings by Friday                                 | 2026-01-24..2026-01-30
    what was delivered by Friday                       | ..2026-01-23
    who came before Monday                             | ..2026-01-18
    who will come after Monday                         | 2026-01-27..
    who comes after Monday                             | none
    who did Ada look after last week                   | 2026-01-12..2026-01-18
    whom was she looking after on Monday               | 2026-01-19..2026-01-19
    bookings for the week of the 26th                  | 2026-01-26..2026-02-01
    calls the 10th                                     | 2026-01-10..2026-01-10
    calls the 2nd customer                             | none
    calls on Good Friday                               | 2025-04-18..2025-04-18
    calls on Easter Monday                             | 2025-04-21..2025-04-21
    calls after the 15th and before the 20th           | 2026-01-16..2026-01-19
    calls after 5 January and before 10 January        | 2026-01-06..2026-01-09
    calls since Monday and before Thursday             | 2026-01-19..2026-01-21
    calls since the 2nd until the 4th                  | none
    calls on the 12th, and how many on the 13th?       | none
    since the 1st and only visit                       | none
    calls 1st Jan to date                              | 2026-01-01..2026-01-24
    calls on this day last year                        | 2025-01-24..2025-01-24
    calls from Monday, until Wednesday                 | 2026-01-19..2026-01-21
    calls 5.1.2026 - 8.1.2026                          | 2026-01-05..2026-01-08
    calls on the 5th and the 8th                       | none
    the 2nd cheapest                                   | none
    on the 2nd floor                                   | none
    between the 1st and the 2nd customer               | none
    since the 2nd visit                                | none
    by the 1st trainer                                 | none
    on the 14th of each month                          | none
    which are the 5th and the 6th?                     | none
    May 3-5 year olds climb?                           | none
    """),
    "fr": table("""
    appels depuis le 12                                | 2026-01-12..2026-01-24
    qui a appelé entre le 6 et le 8 ?                  | 2026-01-06..2026-01-08
    qui a appelé du 6 au 8 ?                           | 2026-01-06..2026-01-08
    appels jusqu'au 15                                 | ..2026-01-15
    rendez-vous à partir du 28 janvier                 | 2026-01-28..
    appels du lundi 5 au vendredi 9                    | 2026-01-05..2026-01-09
    appels lundi et mardi de la semaine dernière       | 2026-01-12..2026-01-13
    appels avant hier                                  | 2026-01-22..2026-01-22
    appels le samedi 10                                | 2026-01-10..2026-01-10
    depuis le 2 rue de Paris                           | none
    du 6 au 8 de chaque mois                           | none
    """),
    "de": table("""
    Anrufe seit dem 12.                                | 2026-01-12..2026-01-24
    Wer war vom 6. bis zum 8. da?                      | 2026-01-06..2026-01-08
    Wer hat vom 6. bis 8. angerufen?                   | 2026-01-06..2026-01-08
    Wer hat zwischen dem 6. und 8. angerufen?          | 2026-01-06..2026-01-08
    Anrufe bis zum 15.                                 | ..2026-01-15
    Anrufe am Samstag, dem 10.                         | 2026-01-10..2026-01-10
    Anrufe am 5. und 6.                                | 2026-02-05..2026-02-06
    Anrufe am 5. und 8.                                | none
    Anrufe am 10. des letzten Monats                   | 2025-12-10..2025-12-10
    Termine ab dem 28.                                 | 2026-01-28..
    Termine ab Montag                                  | 2026-01-26..
    Wer wohnt im 3. Stock?                             | none
    """),
}


PARTS = {
    "en": table("""
    calls in the last fortnight                        | 2026-01-11..2026-01-24
    the past fortnight                                 | 2026-01-11..2026-01-24
    bookings for the next fortnight                    | 2026-01-25..2026-02-07
    calls a fortnight ago                              | 2026-01-05..2026-01-11
    calls this fortnight                               | none
    calls in the last couple of weeks                  | 2026-01-11..2026-01-24
    calls the past 2 weekends                          | none
    sales year to date                                 | 2026-01-01..2026-01-24
    sales mtd                                          | 2026-01-01..2026-01-24
    sales this year so far                             | 2026-01-01..2026-01-24
    calls since the start of the month                 | 2026-01-01..2026-01-24
    calls the week before last                         | 2026-01-05..2026-01-11
    calls the month before last                        | 2025-11-01..2025-11-30
    bookings the week after next                       | 2026-02-02..2026-02-08
    calls yday                                         | 2026-01-23..2026-01-23
    bookings tmrw                                      | 2026-01-25..2026-01-25
    calls at the weekend                               | 2026-01-24..2026-01-25
    Are you open at the weekend?                       | none
    calls in the second half of last month             | 2025-12-16..2025-12-31
    calls in the first half of the month               | 2026-01-01..2026-01-15
    calls in the first half of the year                | 2026-01-01..2026-06-30
    calls in the first quarter of last year            | 2025-01-01..2025-03-31
    calls in the last week of last month               | 2025-12-25..2025-12-31
    calls in the last full week of January             | 2026-01-19..2026-01-25
    calls in the last weekend of January               | 2026-01-31..2026-02-01
    calls in the last three days of December           | 2025-12-29..2025-12-31
    calls in the first ten days of January             | 2026-01-01..2026-01-10
    calls in the first three months of 2025            | 2025-01-01..2025-03-31
    calls in the second two weeks of January           | none
    calls on the first Monday of January               | 2026-01-05..2026-01-05
    calls since the second Tuesday in January          | 2026-01-13..2026-01-24
    What was the last day of January with a complaint? | none
    calls H1 of last year                              | 2025-01-01..2025-06-30
    calls in Q1 of 2025                                | 2025-01-01..2025-03-31
    calls Q4 last year                                 | 2025-10-01..2025-12-31
    calls this and last month                          | 2025-12-01..2026-01-31
    bookings this week and next                        | 2026-01-19..2026-02-01
    bookings this or next week                         | none
    Compare this and last month                        | none
    calls in the first third of January                | none
    bookings until the end of the month                | ..2026-01-31
    Is it paid at the end of the month?                | none
    bookings from the 28th to the end of the month     | 2026-01-28..2026-01-31
    calls from 5 December to the end of January        | 2025-12-05..2026-01-31
    bookings by the end of January                     | ..2026-01-31
    bookings up to the end of last week                | ..2026-01-18
    calls in the 2nd week of January                   | 2026-01-08..2026-01-14
    calls in the 1st quarter of 2025                   | 2025-01-01..2025-03-31
    calls in the first and second week of January      | none
    calls in weeks 1 and 2 of January                  | none
    calls in week 3 of January                         | none
    calls in the last full month                       | 2025-12-01..2025-12-31
    calls in Q1 last year                              | 2025-01-01..2025-03-31
    calls Q1-Q2 2025                                   | 2025-01-01..2025-06-30
    calls last year in January                         | 2025-01-01..2025-01-31
    """),
    "fr": table("""
    appels la première moitié du mois dernier          | 2025-12-01..2025-12-15
    appels de la première semaine de janvier           | 2026-01-01..2026-01-07
    appels depuis le début de l'année                  | 2026-01-01..2026-01-24
    """),
    "de": table("""
    Anrufe vorletzte Woche                             | 2026-01-05..2026-01-11
    Anrufe seit Jahresbeginn                           | 2026-01-01..2026-01-24
    Anrufe in der ersten Hälfte des Monats             | 2026-01-01..2026-01-15
    Anrufe am letzten Freitag im Januar                | 2026-01-30..2026-01-30
    Anrufe am Wochenende                               | 2026-01-24..2026-01-25
    """),
}


@pytest.mark.parametrize(
    ("text", "expected", "language"),
    [(*row, name) for rows in (DAYS, PARTS) for name in rows for row in rows[name]],
)
def test_days_and_parts_of_a_month_or_a_year(text: str, expected: str, language: str) -> None:
    assert days(text, SATURDAY, language) == expected


def test_a_day_of_the_month_may_be_of_another_month() -> None:
    found = find_period("calls from the 6th to the 8th", date(2026, 1, 24))
    assert found is not None and found.otherwise is not None
    assert (found.label, found.otherwise.label) == ("6 to 8 February 2026", "6 to 8 January 2026")


@pytest.mark.parametrize(
    ("text", "today", "expected"),
    table("""
    Who came this week?              | 2026-11-16 | 2026-11-16..2026-11-22
    Who came last month?             | 2026-03-31 | 2026-02-01..2026-02-28
    Who came last month?             | 2024-03-31 | 2024-02-01..2024-02-29
    Who came yesterday?              | 2024-03-01 | 2024-02-29..2024-02-29
    Who came last year?              | 2024-02-29 | 2023-01-01..2023-12-31
    Who came on 29 February?         | 2026-11-22 | 2024-02-29..2024-02-29
    Who came last week?              | 2026-01-04 | 2025-12-22..2025-12-28
    Who came yesterday?              | 2026-01-01 | 2025-12-31..2025-12-31
    Who came in December?            | 2026-01-15 | 2025-12-01..2025-12-31
    Who came in January?             | 2026-01-15 | 2026-01-01..2026-01-31
    Who came last January?           | 2026-01-15 | 2025-01-01..2025-01-31
    Who comes on 27 January?         | 2026-01-18 | 2026-01-27..2026-01-27
    Who is shaved on 7 March?        | 2026-01-16 | 2026-03-07..2026-03-07
    Who came last quarter?           | 2026-01-18 | 2025-10-01..2025-12-31
    Who came in the last 30 days?    | 2024-03-15 | 2024-02-15..2024-03-15
    Who came in the last 3 months?   | 2026-05-31 | 2026-03-01..2026-05-31
    Who came last Sunday?            | 2026-11-22 | 2026-11-15..2026-11-15
    Who comes next Sunday?           | 2026-11-22 | 2026-11-29..2026-11-29
    Who came since Christmas?        | 2026-12-25 | 2026-12-25..2026-12-25
    """),
)
def test_ends_of_months_years_and_weeks(text: str, today: str, expected: str) -> None:
    assert days(text, today, "en") == expected


def test_a_period_says_its_words_and_tells_its_days() -> None:
    found = find_period("How many came between 3 and 9 January, by the way?", date(2026, 11, 22))
    assert found is not None
    assert (found.said, found.span, found.label) == ("between 3 and 9 January", (14, 37), "3 to 9 January 2026")
    since = find_period("calls since Monday", date(2026, 11, 22))
    assert since is not None and (since.said, since.label) == ("since Monday", "16 to 22 November 2026")


def test_only_languages_of_the_index_are_read() -> None:
    assert find_period("Combien d'appels en janvier ?", date(2026, 11, 22), ["en"]) is None
    assert find_period("Combien d'appels en janvier ?", date(2026, 11, 22), ["en", "fr"]) is not None
    assert find_period("今日の予約は?", date(2026, 11, 22), ["ja"]) is None, "a language without words of time"


def test_of_the_same_kind_is_the_period_of_a_day() -> None:
    week = find_period("this week", date(2026, 11, 22))
    assert week is not None and week.move_to(date(2026, 1, 14)).label == "12 to 18 January 2026"
    days_ = Period(date(2026, 11, 1), date(2026, 11, 7), "", (0, 0))
    assert days_.move_to(date(2026, 1, 14)).label == "8 to 14 January 2026"


@pytest.mark.parametrize(
    ("text", "filters", "label"),
    [
        ("What did customers book this week?", (("date", ">=", "2026-01-12"), ("date", "<=", "2026-01-18")), "12 to 18 January 2026"),
        ("What did customers book in March?", (("date", ">=", 1768176000.0),), "since 12 January 2026"),
        ("What did customers book?", (("date", ">=", "2026-01-12"),), None),
        ("What did customers book this week?", (("date", "is_empty", None),), None),
        ("What did customers book this week?", (("service", "==", "cut"),), "16 to 22 November 2026"),
    ],
)  # fmt: skip
def test_words_of_time_mean_the_days_that_a_request_sends(
    text: str, filters: tuple[tuple[str, str, object], ...], label: str | None
) -> None:
    spec = IndexSpec.model_validate({"name": "visits", "source_types": ("visit",), "default_source_type": "visit"})
    asked = Question(text, tuple(condition(*each) for each in filters), today=date(2026, 11, 22))
    found = period_of(asked, spec)
    assert (found and found.label) == label


def test_conditions_are_whole_days_of_utc() -> None:
    leap = Period(date(2024, 2, 29), date(2024, 2, 29), "", (0, 0), "day")
    first, last = condition("date", ">=", 1709164800.0), condition("date", "<", 1709251200.0)
    assert conditions_of(leap) == (first, last)
    assert leap.holds(day_of(1709251199.0)) and not leap.holds(day_of(1709251200.0))


TODAYS = st.dates(date(1990, 1, 1), date(2090, 12, 31))


@given(TODAYS, st.integers(1, 400))
def test_the_last_days_are_so_many_and_end_today(today: date, number: int) -> None:
    found = find_period(f"calls in the last {number} days", today)
    assert found is not None and found.end == today and found.start is not None
    assert (today - found.start).days + 1 == number


@given(TODAYS, st.sampled_from(["last", "this", "next"]), st.sampled_from(["week", "month", "quarter", "year"]))
def test_units_follow_each_other_without_a_gap(today: date, step: str, unit: str) -> None:
    by = {name: find_period(f"calls {name} {unit}", today) for name in ("last", "this", "next")}
    last, this, following = by["last"], by["this"], by["next"]
    assert last and this and following and last.end and this.end and this.start and following.start
    assert last.end + timedelta(days=1) == this.start <= today <= this.end == following.start - timedelta(days=1)


@given(TODAYS, st.dates(date(1990, 1, 1), date(2090, 12, 31)))
def test_a_written_day_is_that_day(today: date, day: date) -> None:
    for written in (day.isoformat(), days_text(day, day)):
        found = find_period(f"Who came on {written}?", today)
        assert found is not None and found.start == found.end == day


@given(st.text(max_size=200), TODAYS)
def test_any_text_can_be_read(text: str, today: date) -> None:
    find_period(text, today, ["en", "fr", "de"])


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("What did the second week of January, the 12th to the 18th, bring?", "12 to 18 January 2026"),
        ("alerts in the last week of January, 26th to 31st", "26 to 31 January 2026"),
        ("in the first full week of January", "5 to 11 January 2026"),
        ("Who comes a week from today?", "27 January 2026"),
        ("e-mails later than 1 January 2026", "2 to 20 January 2026"),
    ],
)
def test_days_that_stand_beside_a_part_of_a_month(text: str, label: str) -> None:
    period = find_period(text, date(2026, 1, 20))
    assert period is not None and period.label == label


def test_a_month_may_be_of_records_that_an_index_names() -> None:
    assert find_period("the dearest stay of June", date(2026, 1, 20)) is None
    period = find_period("the dearest stay of June", date(2026, 1, 20), records=["stay"])
    assert period is not None and period.label == "June 2025"


def test_days_in_a_row_are_no_days_of_the_month() -> None:
    period = find_period("sunny days in June 2014, 3 to 4 in a row", date(2026, 1, 20))
    assert period is None or period.label == "June 2014"


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("Was there more rain in 2012 or in 2014?", ["2012", "2014"]),
        (
            "Did we take more from 5 to 11 January or from 12 to 18 January?",
            ["5 to 11 January 2026", "12 to 18 January 2026"],
        ),
        ("sales in December as against January", ["December 2025", "January 2026"]),
        ("sales May 2024 vs May 2025", ["May 2024", "May 2025"]),
        ("Rain from 2012 to 2014", []),
        ("calls in January, and who rang in February", []),
    ],
)
def test_two_periods_are_compared_where_nothing_else_stands_between(text: str, labels: list[str]) -> None:
    assert [each.label for each in find_periods(text, date(2026, 1, 20))] == labels


def test_patterns_are_compiled_when_they_are_used() -> None:
    """All of them take 15 ms, and most questions say nothing of time."""
    periods._grammars.cache_clear()
    grammars = periods._grammars(LANGUAGES)
    assert not any(grammar.has("changed", "Within how many days are returns free?") for grammar in grammars)
    assert [set(vars(grammar)) for grammar in grammars] == [{"language", "words"}] * len(LANGUAGES)
    assert find_period("Who approves a discount?", date(2026, 11, 22)) is None
    assert not any("point" in vars(grammar) for grammar in grammars)
    assert find_period("this week", date(2026, 11, 22), ["en"]) is not None
    assert "point" in vars(periods._grammars(("en",))[0])
