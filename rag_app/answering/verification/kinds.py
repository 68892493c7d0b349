"""The four kinds of sentence in an answer, told apart by rules. In doubt a sentence is a claim.

| kind | rule, in this order |
|---|---|
| admission | says that the sources, or who answers, lack what is asked for |
| connection | a greeting, an offer, a title, or what only leads in: "Here is what I found:" |
| advice | an imperative or a recommendation, and no statement beside it ("..., because its owner is a fraud" is one) |
| claim | all others |
"""

import re
from enum import StrEnum

from rag_app.domain import compile_later
from rag_app.retrieval.text import words_in

_RECORDS = (
    r"(?:context|records?|sources?|passages?|excerpts?|documents?|text|book|transcripts?|information|data|calls|notes|"
    r"search\ results|knowledge\ base|available\ \w+)"
)
_FACTS = (
    r"(?:information|context|data|details?|evidence|records?|sources?|passages?|figures?|numbers?|volumes?|history)"
)
_PAPERS = (
    r"(?:handbook|policy|policies|page|pages|manual|guide|report|reports|e-?mails?|letters?|article|articles|contract|faq|website|"
    r"summary|summaries|listing|listings|reviews?|terms|price\ list|minutes|papers?|quote|offer|table|sheet|leaflet|brochure|menu|"
    r"programme|schedule|invoice|statement|rules|announcement|notice|message|form|log|timetable)"
)
_STATE = r"(?:contain|include|list|mention|cover|say|tell|provide|specify|state|answer|have|address|give|discuss|describe|indicate|show|name)"
# "We do not sell data" is a claim, and so is "two complained, and no answer was given": who lacks what is asked for
_ADMISSION = compile_later(
    rf"""\bI(?:['’]m|\ am)?\b[^.!?]{{0,20}}?\b(?:not|n['’]t|cannot|can['’]t|don['’]t|didn['’]t|couldn['’]t|unable|lack|have\ no)\b
            [^.!?]{{0,60}}?\b(?:{_FACTS}|answer|know|tell|say|find|determine|confirm|see)\b
      | \bI\ lack\b
      | \bwe\ (?:do\ not|don['’]t|cannot|can['’]t|could\ not|couldn['’]t)\ (?:have|find)\b[^.!?]{{0,60}}?\b{_FACTS}\b
      | \b{_RECORDS}\b[^.!?]{{0,30}}?\b(?:do|does|did)(?:\ not|n['’]t)\ (?:\w+\ ){{0,2}}?{_STATE}\b
      | \b{_PAPERS}\b[^.!?]{{0,30}}?\b(?:do|does|did)(?:\ not|n['’]t)\ (?:say|tell|mention|specify|state|indicate|explain|record|show|reveal|spell\ out|set\ out|go\ into|cover|give)\b
            [^.!?]{{0,20}}?\b(?:whether|if|how|what|when|who|which|why|where|anything)\b
      | \b(?:{_RECORDS}|{_PAPERS})\ says?\ nothing\ (?:on|about|of)\b
      | \b(?:{_RECORDS}|{_PAPERS})\ (?:gives?|names?|states?|mentions?|specif(?:y|ies)|records?)\ no\b
      | \b(?:none|nothing)\ (?:of|in)\ (?:the\ |these\ |my\ )?(?:\w+\ )?{_RECORDS}\ (?:\w+\ )?(?:{_STATE}s?\b|answers\b)
      | \bthere(?:\ (?:is|are|was|were)|['’]s)(?:\ no|n['’]t|\ not|\ insufficient)\b[^.!?]{{0,30}}?\b(?:{_FACTS}|mention|answer)\b
      | \b(?:no|not\ enough|insufficient)\ (?:\w+\ ){{0,2}}?(?:information|details?|data|evidence|context)\ (?:\w+\ ){{0,2}}?(?:available|
            provided|given|found|mentioned|retrieved|on|about|to\ answer)\b
      | \b(?:not|n['’]t)\ (?:mentioned|stated|specified|provided|covered|available|included|given|described)\b[^.!?]{{0,20}}?\b{_RECORDS}\b
      | (?:\bnot|n['’]t)\ (?:mentioned|stated|specified|recorded|spelled\ out|given)\ (?:in|by|on)\b[^.!?]{{0,20}}?\b{_PAPERS}\b
      | \bno\ mention\ of\b
      | \b(?:kein\w*|nicht\ genug)\ (?:\w+\ ){{0,2}}?(?:informationen|angaben|daten|hinweise?|quellen?)\b
      | \b(?:quellen|unterlagen|dokumente|daten)\b[^.!?]{{0,40}}?\b(?:nicht|keine?)\b | \bich\ weiß\ (?:es\ |das\ )?nicht\b
      | \bje\ ne\ (?:trouve|dispose|sais|peux|connais)\b[^.!?]{{0,20}}?\b(?:pas|aucune?)\b
      | \b(?:sources?|documents?|contexte)\b[^.!?]{{0,20}}?\b(?:ne\ |n['’])\w+(?:\ \w+)?\ (?:pas|aucune?)\b
      | \b(?:il\ n['’]y\ a|je\ n['’]ai)\ (?:pas|aucune?)\b[^.!?]{{0,30}}?\b(?:informations?|données|détails?)\b
      | \bno\ (?:tengo|encuentro|dispongo)\b[^.!?]{{0,30}}?\b(?:información|datos)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_CONDITIONAL = re.compile(
    r"\b(?:if|when|whenever|where|unless|until|in case|falls|wenn|si)\s+(?:the\s|your\s|our\s|die\s|les\s)?\Z",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"\A(?:(?:my |our )?(?:next |first |second |third |last )?(?:steps?|actions?|tips?|recommendations?|suggestions?|advice|ideas?|to[ -]dos?)"
    r"(?: \d+)?|what to do(?: next)?|(?:nächster? )?schritte?|empfehlung(?:en)?|tipps?|conseils?)\s*:?(?:\*\*|__)?:?\s+(?=\S)",
    re.IGNORECASE,
)
_MARKER = re.compile(r"[ \t]*\[Source [0-9]+\]")
_LIST_MARKER = re.compile(r"\A[\s>]*(?:[-*•–]\s+|\d{1,3}[.)]\s+)?")
_HEADING = re.compile(r"\A#{1,6}\s|\A(?:\*\*|__)[^*_]+(?:\*\*|__)\Z")
FINITE = re.compile(
    r"\b(?:is|are|was|were|has|had|have|will|would|does|did|do|must|can|cannot|isn['’]t|aren['’]t|wasn['’]t|won['’]t|says?|said|costs?"
    r"|gets?|got|lies|lied|went|goes|came|comes|ist|sind|war|hat|wird|est|sont|était|a|ont)\b",
    re.IGNORECASE,
)
PREDICATE = re.compile(
    rf"{FINITE.pattern}|\b\w+ed\b|\b(?:began|broke|brought|bought|chose|drove|fell|felt|fought|forgot|gave|grew|heard|held|kept|knew"
    r"|led|lost|made|met|paid|ran|rose|sank|sent|shrank|sold|spent|stole|stood|told|took|went|won|wrote|falls|rises|grows|drops|sinks"
    r"|shrinks|loses|wins|leaves)\b",
    re.IGNORECASE,
)
_CONNECTION = compile_later(
    r"""(?:(?:sure|certainly|of\ course|okay|ok|great|absolutely|hello|hi|hey|good\ (?:morning|day|evening)|welcome|thanks|thank\ you
            |no\ problem|gladly|(?:good)?bye|how\ are\ you|hallo|bonjour|gerne|merci)\b(?:\ (?:there|so\ much|for\ (?:asking|your\ \w+)))?[\s,!.?]*)+\Z
      | you(?:['’]re|\ are)\ (?:very\ |most\ )?welcome\b[^,;:]{0,20}\Z
      | (?:(?:i|we)\ )?(?:hope|wish)\ (?:you|your|the|this|that|it|everything|all)\b[^,;:]{0,60}\Z
      | (?:thanks|thank\ you|many\ thanks)\b[^,;:]{0,60}\Z
      | (?:(?:my|our)\ )?(?:all\ the\ best|best\ wishes|best\ of\ luck|good\ luck|congratulations|condolences|(?:deepest\ |sincere\ )?sympathy
            |get\ well|take\ care|have\ (?:a|an|fun|lots)|enjoy|safe\ (?:travels?|journey)|happy\ \w+ing|i(?:['’]m|\ am)\ (?:so\ |very\ )?sorry)\b
            (?:(?!\b(?:is|are|was|were|has|had|because|since)\b)[^,;:]){0,60}\Z
      | (?:please\ |feel\ free\ to\ |just\ )?(?:let\ me\ know|ask(?:\ me)?)\ (?:if|whether|what|which)\b[^;:]*\Z
      | (?:if\ you\ [^,;:]{0,60},\ )?(?:i['’]m|i\ am|i['’]d\ be|i\ would\ be)\ (?:happy|glad)\ to\ help\b[^;:]*\Z
      | (?:(?:would|do|shall|should|can|could|may|want|is\ there\ anything|anything\ else|which|what)\b[^;:]*(?:\byou\b|\bi\b|\bme\b|\belse\b)[^;:]*\?)\Z""",
    re.IGNORECASE | re.VERBOSE,
)
_LEAD_IN = compile_later(
    r"""(?:(?:based\ on|according\ to|from|looking\ at)\ [^:;]{1,80},\ )?
        (?:here(?:['’]s|\ is|\ are|\ comes?)\b[^;]*|(?:in|to)\ (?:summary|short|sum\ up|conclude|conclusion|summarize|brief)
           |(?:next|actionable)\ \w+|hier\ (?:ist|sind)\b[^;]*|voici\b[^;]*|(?:this|that)\ is\ what\ (?:i|was)\ found|what\ i\ found
           |the\ following\ (?:\w+\ ){0,2}(?:(?:is|are|was|were|have\ been)\ (?:\w+ly\ )?(?:made|found|mentioned|listed|recorded|agreed|available
               |planned|reported|given|decided|taken|proposed|recommended|known)|apply|applies|hold|holds))[:.!]\Z""",
    re.IGNORECASE | re.VERBOSE,
)
IMPERATIVES = frozenset(
    words_in(
        """
    add adjust aim analyse analyze apply arrange ask avoid be begin browse build bundle call change check choose
    click compare complete confirm consider consult contact continue create cut decide delete describe develop
    differentiate do download edit email emphasize enable ensure enter evaluate experiment explore export filter
    find focus follow get give go have highlight identify import improve include increase inspect install invite
    join keep launch learn leave let limit list log look lower make monitor move offer open optimise optimize
    order pair pick plan position prepare price prioritise prioritize promote provide raise read reach rebook
    reconsider record reduce refine refresh remove rename repeat reply report research respond restart restore
    review rephrase run save schedule scroll search see select sell send set share sign sort speak specify start
    stock stop submit subscribe switch tag take talk target tell test track train try turn update upgrade upload
    use verify visit wait watch work write
    """
    )
)
_ADVICE = compile_later(
    rf"""(?:(?:next|then|finally|first|second|third|also|instead|alternatively|so|otherwise|afterwards|in\ addition|if\ needed),?\ )?
        (?:(?:if|to|for|before|after|when|once)\ [^,;:]{{1,80}},\ )?
        (?:please\ |kindly\ )?
        (?:(?:don['’]t|do\ not|never|always|also|just)\ )?
        (?:(?:{"|".join(sorted(IMPERATIVES))})\b(?!-)(?!\ of\b)
          | you\ (?:should|could|might|may\ want\ to|can\ also\ try|may\ wish\ to|could\ also)\b(?!\ know\b|\ be\ aware)
          | (?:i|we)(?:['’]d|\ would)?\ (?:also\ )?(?:recommend|suggest|advise|start|begin|propose)\b
          | [^,;:]{{1,80}}\b(?:might|may|could)\ (?:also\ )?help\b
          | [^;:]{{1,80}}\b(?:is|seems|looks\ like|would\ be)\ (?:probably\ )?(?:the|a)\ (?:\w+\ )?(?:bet|choice|option|place\ to\ start|way\ in)\b
          | (?:it|this)(?:['’]s|\ (?:is|may|might|could|would))\ (?:also\ )?(?:be\ )?(?:worth|a\ good\ idea|advisable|best|useful)\b
          | (?:prüfen|nutzen|verwenden|fragen|versuchen|wenden|öffnen|vergleichen|achten|rufen|schauen|sehen|wählen)\ sie\b
          | (?:sie|du)\ (?:sollten|könnten|solltest|könntest)\b | ich\ (?:empfehle|rate|würde)\b
          | vous\ (?:devriez|pourriez)\b | je\ (?:recommande|suggère|conseille)\b
          | (?:vérifiez|utilisez|essayez|consultez|contactez|ajoutez|comparez|demandez|ouvrez|pensez)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_ABOUT_FACTS = re.compile(
    r"\A(?:please\s+)?(?:note|remember|keep in mind|be aware|consider that|know that|see that|beachten|notez)\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"\b(?:if|whether|when|once|unless|until|where|how|what|before|after)\b[^,;:]*", re.IGNORECASE)
_STATED_BESIDE = compile_later(
    r"""[,;:–—]\s*(?:its?|the|they|he|she|this|these|those|their|his|her|as|since|because|for|which|who|where|and\ (?:it|its|the|they|he|she))\b
      | \b(?:because|since|so\ that|which|who|whose|that)\b | [–—]""",
    re.IGNORECASE | re.VERBOSE,
)
_CONTRAST = re.compile(r"[,;:–—]\s*|\b(?:but|however|although|though|while|whereas|yet|and|aber|mais)\b", re.IGNORECASE)


class Kind(StrEnum):
    """What a sentence of an answer is."""

    CLAIM = "claim"
    ADVICE = "advice"
    ADMISSION = "admission"
    CONNECTION = "connection"


def plain(sentence: str) -> str:
    """A sentence without its markers, its bullet or number, and the blanks around it.

    >>> plain("2. Dogs are welcome [Source 1]. ")
    'Dogs are welcome.'
    """
    return _LIST_MARKER.sub("", _MARKER.sub("", sentence)).strip()


def kind_of(sentence: str) -> Kind:
    """
    >>> [kind_of(each).value for each in ("Dogs are welcome.", "Check the price list.", "I don't know.", "Here is the list:")]
    ['claim', 'advice', 'admission', 'connection']
    """
    said = plain(sentence)
    if _admits(said):
        return Kind.ADMISSION
    if _is_connection(said):
        return Kind.CONNECTION
    return Kind.ADVICE if _is_advice(said) else Kind.CLAIM


def leads_in(sentence: str) -> bool:
    """Whether a sentence only announces what follows: without that it has no sense.

    >>> leads_in("Here is what I found:"), leads_in("Sure!")
    (True, False)
    """
    said = plain(sentence)
    return bool(said.rstrip("*_ ").endswith(":") or _HEADING.search(said))


def clauses_without_admission(sentence: str) -> str:
    """What a sentence states beside an admission.

    >>> clauses_without_admission("I don't know the price, but dogs are welcome.")
    'dogs are welcome.'
    """
    parts = [part for part in _CONTRAST.split(sentence) if part.strip()]
    return " ".join(part.strip() for part in parts if not _admits(part)) if len(parts) > 1 else ""


def _admits(said: str) -> bool:
    """Not in a condition: "if there is no answer, ..."."""
    return any(not _CONDITIONAL.search(said[: found.start()]) for found in _ADMISSION.finditer(said))


def _is_connection(said: str) -> bool:
    bare = said.strip("*_ ")
    is_short = len(bare.split()) <= 8 and not PREDICATE.search(bare)
    is_title = is_short and (_HEADING.search(said) or bare.endswith(":"))
    return bool(is_title or _LEAD_IN.match(bare) or _CONNECTION.match(bare)) or not re.search(r"\w", said)


def _is_advice(said: str) -> bool:
    said = _LABEL.sub("", said.strip("*_ ")).strip("*_ ")
    if _ABOUT_FACTS.match(said) or not (begun := _ADVICE.match(said)):
        return False
    rest = _CONDITION.sub("", said[begun.end() :])
    return not _STATED_BESIDE.search(rest) and not FINITE.search(re.sub(r"\ba\b", "", rest))
