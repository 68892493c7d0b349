"""Greetings, thanks and "what can I ask?": they ask nothing of the sources, so nothing is searched for them."""

import re

# A message of these alone is a courtesy, of the first of these kinds that is in it.
_WORDS = {
    "greeting": "hi|hello|hey|good (?:morning|afternoon|evening|day)|how are you|hallo|guten (?:tag|morgen|abend)|moin|servus|bonjour|salut|bonsoir",
    "thanks": "thanks|thank you|thx|cheers|danke|vielen dank|merci",
    "farewell": "bye|goodbye|see you|tschüss|auf wiedersehen|au revoir",
    "help": "help|(?:what|which questions) can (?:i|we) ask(?: you)?|what can you (?:do|answer|tell me)|what do you know|who are you"
    "|was kann ich (?:hier |dich |sie )?fragen|was kannst du|hilfe|que puis-je demander|aide",
}
_FILLERS = r"there|all|everyone|everybody|again|here|please|so much|very much|a lot|many|ok|okay|great|perfect|nice|schön|sehr|beaucoup|zusammen|à tous"
_COURTESY = re.compile(
    rf"(?:[\s,.!?;:'\"()-]|\b(?:{'|'.join(f'(?P<{kind}>{words})' for kind, words in _WORDS.items())}|{_FILLERS})\b)+",
    re.IGNORECASE,
)
_GERMAN = re.compile(r"\b(?:hallo|guten|moin|servus|danke|dank|tschüss|wiedersehen|was|hilfe)\b", re.IGNORECASE)
_FRENCH = re.compile(r"\b(?:bonjour|salut|bonsoir|merci|revoir|que|aide)\b", re.IGNORECASE)
_REPLIES = {
    "en": {"greeting": "Hello.", "thanks": "You are welcome.", "farewell": "Goodbye.", "help": ""},
    "de": {"greeting": "Hallo.", "thanks": "Gern geschehen.", "farewell": "Auf Wiedersehen.", "help": ""},
    "fr": {"greeting": "Bonjour.", "thanks": "Je vous en prie.", "farewell": "Au revoir.", "help": ""},
}
_ASK = {
    "en": "Ask a question about the documents that you may see: the answer cites them.",
    "de": "Stellen Sie eine Frage zu den Dokumenten, die Sie sehen dürfen: Die Antwort nennt ihre Quellen.",
    "fr": "Posez une question sur les documents que vous pouvez voir : la réponse cite ses sources.",
}


def courtesy(text: str) -> str:
    """The reply to a message that only greets, thanks, takes leave or asks what can be asked; empty for any other.

    >>> courtesy("Thanks a lot!"), courtesy("Thanks, when do you open?")
    ('You are welcome. Ask a question about the documents that you may see: the answer cites them.', '')
    >>> courtesy("Guten Tag")
    'Hallo. Stellen Sie eine Frage zu den Dokumenten, die Sie sehen dürfen: Die Antwort nennt ihre Quellen.'
    """
    found = _COURTESY.fullmatch(text.strip())
    kind = next((kind for kind in _WORDS if found and found[kind]), "")
    if not kind:
        return ""
    language = "de" if _GERMAN.search(text) else "fr" if _FRENCH.search(text) else "en"
    return f"{_REPLIES[language][kind]} {_ASK[language]}".strip()
