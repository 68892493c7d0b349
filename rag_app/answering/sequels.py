"""What belongs to a sentence in those around it: an exception to it, what was decided about what it proposes, how what it
offers came out ("Outcome: ..."), and what it only announces ("Two things annoy us."). And the steps before and behind one.

Rules for English and German. Without the sentence that limits it, a general one is untrue: "Sale items cannot be
returned. However, faulty ones can." A proposal alone reads like a fact.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from math import inf

from rag_app.answering.citations import content_words
from rag_app.answering.passages import Passage
from rag_app.answering.verification.figures import OTHER_NUMBERS
from rag_app.retrieval.confidence import stem
from rag_app.retrieval.text import NUMBER_WORDS

MOST = 2
"""Sentences in a row, of which each limits the one before it."""
MOST_STEPS = 8
"""Sentences of a list of steps that is told whole."""
_ASKS_HOW_TO = re.compile(
    r"\bhow (?:do|can|could|should|must|would|shall) (?:i|we|you|one|they)\b|\bhow to\b|\bhow (?:is|are) .{3,60} (?:done|made)\b|\b(?:what|which) (?:are the )?(?:steps|order)\b"
    r"|\bwhat (?:do|must|should) (?:i|we) (?:have to |need to )?do\b|\bhow does (?:it|that|this|one) (?:go|work)\b|\bwie (?:kann|muss|soll|mache|macht|geht|gehe)\b",
    re.IGNORECASE,
)
_FROM_WHAT_STANDS_BEFORE = re.compile(
    r"\W*(?:(?:but|however|yet|though|although|nevertheless|otherwise|except|exceptions?|unless|only (?:if|when|those|members?)|after that|in that case"
    r"|aber|jedoch|allerdings|dennoch|trotzdem|sonst|andernfalls|ausnahmen?|ausgenommen|außer|nur wenn|es sei denn|danach|in diesem fall)\b"
    r"|(?:this|that|it|they|these|those|dies\w*|das|sie|es|er)\b)",
    re.IGNORECASE,
)
# Says by itself that it is against the sentence before.
_TURNS = re.compile(
    r"^\W*(?:but|yet|otherwise|except|exceptions?|unless|only (?:if|when|those)|sonst|andernfalls|ausnahmen?|ausgenommen|außer|nur wenn|es sei denn)\b"
    r"|\b(?:however|though|nevertheless|(?:is|are) (?:the|an?) exceptions?|exempt|(?:does|do|did) not apply|whatever|regardless|irrespective|even (?:if|when|for)"
    r"|aber|jedoch|allerdings|dennoch|trotzdem|gilt (?:\w+ )?nicht|gelten (?:\w+ )?nicht|ungeachtet|unabhängig von|auch wenn)\b",
    re.IGNORECASE,
)
_LIMITS = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|cannot|only|except|unless|although|without|instead|excluded|provided"
    r"|nicht|kein\w*|nie|niemals|nichts|nur|außer|ausgenommen|ausgeschlossen|untersagt|verboten|sofern|statt)\b|n['’]t\b",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"\b(?:this|these|those|dies\w*|dafür|davon|dabei|dazu|damit|darauf)\b|^\W*(?:\w+\W+){0,4}(?:it|they|them|their|sie|ihr\w*)\b",
    re.IGNORECASE,
)
# Goes before all that the document says beside it.
_OVERRIDES = re.compile(
    r"\b(?:whatever|regardless|irrespective|notwithstanding|despite|in spite of|trotz|ungeachtet|unabhängig)\b.{0,40}"
    r"\b(?:above|below|exceptions?|rules?|conditions?|terms|oben|ausnahmen?|regeln?|bedingungen)\b",
    re.IGNORECASE,
)
# A short sentence that says how many things follow, and none of them.
_ANNOUNCES = re.compile(
    r"(?=(?:\W*\w+){2,9}\W*\Z)(?:[^,;]*\W)?(?P<number>two|three|four|several|a few|some|zwei|drei|vier|mehrere|einige) (?:\w+ ){0,2}"
    r"(?:things|points|reasons|problems|issues|complaints|worries|wishes|changes|options|ways|conditions|questions|requests"
    r"|dinge|punkte|gründe|probleme|wünsche|bedingungen|möglichkeiten|fragen)\b",
    re.IGNORECASE,
)
_NUMBERS = NUMBER_WORDS | OTHER_NUMBERS
# Says how what a document tells of came out.
_CONCLUDES = re.compile(
    r"\W*(?:outcome|result|conclusion|resolution|resolved|decision|decided|agreed|agreement|settled|what was (?:agreed|decided)"
    r"|ergebnis|beschluss|beschlossen|entscheidung|vereinbart|fazit|résultat|décision)\b[^:–—]{0,20}[:–—]\s*\S",
    re.IGNORECASE,
)
# Is not settled yet: an offer, or what would be.
_OFFERS = re.compile(
    r"\b(?:(?:can|could|would|might|may|will|['’]ll|['’]d) (?:\w+ )?(?:offer|give|do|take|be|put|accept|pay|knock|waive|match|send)|offer(?:s|ed|ing)?|quoted?|if you (?:sign|take|order|book|agree|pay|stay)"
    r"|(?:kann|könnte|würde|biete) (?:ich|wir)|(?:ich|wir) (?:kann|können|könnten?|würden?|bieten?)|angeboten|angebot)\b",
    re.IGNORECASE,
)
_PROPOSES = re.compile(
    r"\b(?:propos(?:ed|es|als?)|suggest(?:ed|s|ions?)|put forward|moved (?:that|to)|motions?|request(?:ed|s)?|asked|appli(?:ed|cations?)|planned"
    r"|the plan|wanted|recommend(?:ed|s|ations?)|sought|pleaded"
    r"|schl(?:ug|ugen|ägt)|vorgeschlagen|vorschl(?:ag|äge)|beantragt\w*|antr(?:ag|äge)|vorgesehen|geplant|angeregt|regte|forderte\w*|bat|wünscht\w*)\b",
    re.IGNORECASE,
)
_DECIDES = re.compile(
    r"\b(?:reject\w*|turned (?:\w+ ){0,3}down|declin\w*|refus(?:ed|al)|denied|approv\w*|agree[ds]?|accepted|adopted|carried|passed|vote[ds]?|withdr[ae]wn?|withdrew"
    r"|dropped|postponed|deferred|adjourned|shelved|abandoned|decided|decisions?|defeated|failed|granted|unanimous\w*|against|in favou?r|lost"
    r"|abgelehnt|lehnte\w*|angenommen|zugestimmt|stimmten?|genehmigt\w*|bewilligt\w*|verworfen|vertagt|zurückgezogen|beschl(?:oss|ossen|uss)|einstimmig"
    r"|mehrheit\w*|dagegen|verschoben|zurückgestellt|entschieden|entscheidung)\b",
    re.IGNORECASE,
)


def add_sequels(chosen: Sequence[Passage], pool: Sequence[Passage], question: str) -> list[Passage]:
    """The chosen passages, each with what follows in its paragraph and limits or decides it; what is itself such a sequel
    with the one before it. Of their documents also what goes before every exception, and how an offer came out, if it is about what was asked.

    >>> said = [Passage(0, 0, "Loans are free."), Passage(0, 1, "However, drills cost £2.", goes_on=True)]
    >>> add_sequels(said[:1], said, "Are loans free?") == said
    True
    >>> said = [Passage(0, 0, "Two things annoy us."), Passage(0, 1, "Exports are slow."), Passage(0, 2, "Texts are dear.")]
    >>> add_sequels(said[:1], said, "What annoys them?") == said
    True
    >>> said = [Passage(0, 3, "Ada: I can offer ten per cent."), Passage(0, 9, "Outcome: Bo renews at eight per cent off.")]
    >>> add_sequels(said[:1], said, "What discount did Bo get?") == said
    True
    """
    at = {(each.block, each.place): each for each in pool}
    found = dict.fromkeys(chosen)
    for one in chosen:
        before = at.get((one.block, one.place - 1))
        if before is not None and one.goes_on and _is_sequel(before, one) and _FROM_WHAT_STANDS_BEFORE.match(one.text):
            found[before] = None
        announces = _ANNOUNCES.match(one.text)
        announced = int(_NUMBERS.get(announces["number"].casefold(), MOST)) if announces else 0
        for place in range(one.place + 1, one.place + 1 + max(MOST, announced)):
            following = at.get((one.block, place))
            listed = place <= one.place + announced
            if following is None or not (listed or _is_sequel(at[one.block, place - 1], following)):
                break
            found[following] = None
    blocks, asked = {each.block for each in chosen}, _stems([question])
    added = [each for each in pool if each.block in blocks and _OVERRIDES.search(each.text)]
    unsettled = {each.block for each in chosen if _OFFERS.search(each.text) or _PROPOSES.search(each.text)}
    added += [each for each in pool if each.block in unsettled and _CONCLUDES.match(each.text)]
    return [*found, *(each for each in added if each not in found and asked & _stems([each.text]))]


def complete_steps(chosen: Sequence[Passage], pool: Sequence[Passage], question: str) -> list[Passage]:
    """All steps of the numbered list that the first passage is one of, where a question asks how something is done.

    >>> steps = [Passage(0, n, f"Do {n}.", section="Saw", step=n) for n in (1, 2, 3)]
    >>> [[each.step for each in complete_steps(steps[1:2], steps, asked)] for asked in ("How do I cut?", "What comes second?")]
    [[1, 2, 3], [2]]
    """
    places = {(each.block, each.place): each for each in pool}
    first = next(iter(chosen), None)
    while first is not None and first.goes_on:
        first = places.get((first.block, first.place - 1))
    if first is None or not first.step or not _ASKS_HOW_TO.search(question):
        return [*chosen]
    listed = [each for each in pool if (each.block, each.section) == (first.block, first.section)]
    begins = max((each.place for each in listed if each.step == 1 and each.place <= first.place), default=first.place)
    ends = min((each.place for each in listed if each.step == 1 and each.place > first.place), default=inf)
    steps = [each for each in listed if begins <= each.place < ends]
    told = [*takewhile(lambda each: each.step or each.goes_on, steps)]
    return told if 1 < len(told) <= MOST_STEPS else [*chosen]


def _is_sequel(one: Passage, following: Passage) -> bool:
    if not following.goes_on:
        return False
    if _PROPOSES.search(one.text) and _DECIDES.search(following.text):
        return True
    if _TURNS.search(following.text):
        return True
    if not _LIMITS.search(following.text):
        return False
    return bool(_POINTS_BACK.search(following.text) or _stems([one.text]) & _stems([following.text]))


def _stems(texts: Iterable[str]) -> set[str]:
    return {stem(word) for text in texts for word in content_words(text)}
