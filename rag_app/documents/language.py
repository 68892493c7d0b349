"""Which language is this?"""

from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

_SAMPLE = 2000  # characters: more does not make it surer
_ENOUGH = 20  # characters below which a guess is no better than the default


@cache
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def detect_language(text: str, default: str) -> str:
    """Two letters (ISO 639-1); `default` where the text is too short or says too little.

    >>> detect_language("Les horaires d'ouverture du magasin sont affichés à l'entrée.", "en")
    'fr'
    >>> detect_language("ok", "en")
    'en'
    """
    sample = text[:_SAMPLE].strip()
    if len(sample) < _ENOUGH:
        return default
    found, sureness = _identifier().classify(sample)
    return str(found) if sureness >= 0.8 else default
