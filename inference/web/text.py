"""Words and sentences of plain text, and which sentences a query is about.

* `words` folds case, accents and compatibility forms, keeps letters and digits, drops digit-group commas ("2,381,741"
  is one word) and takes the plural ending off (Harman's S-stemmer), the same for pages and queries. A code such as
  ".dz" keeps its dot, so ".be" is not the word "be".
* `sentences` cuts at line ends and after ".", "!", "?" (and their CJK forms), never after an initial or a common
  abbreviation.
* `best_sentences` is lexical and deterministic: equal relevance goes to the earlier sentence.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

_WORD = re.compile(r"(?<![^\s(\"'])\.[a-z]{2,3}(?![^\W_])|\d+(?:[.,]\d+)*(?![^\W_])|[^\W_]+")
_POSSESSIVE = re.compile(r"['\u2019]s\b")
_END = re.compile(r"(?:(?<=[.!?])[\"'\u201d\u2019)\]]?\s+(?=[\"'\u201c\u2018(\[]?[^\W_a-z])|(?<=[\u3002\uff01\uff1f]))")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'.-])(?:[^\W\d_]|St|Ste|Mt|Ft|Dr|Mr|Mrs|Ms|Jr|Sr|Gen|Col|Capt|Adm|Maj|Lt|Sgt|Rev|Hon|Prof|Gov|Sen|Rep"
    r"|No|vs|ca|cf|etc|approx|Co|Inc|Ltd|Corp)\.$"
)
_STOP = frozenset(
    "a an and are as at be been by did do doe for from had has have how in into is it its of on or that the their them"
    " there these they this to wa was were what when where which who whom whose will with".split()
)


def words(text: str) -> list[str]:
    """The words of `text` as the index knows them, in order, repeats included."""
    if not text.isascii():
        folded = unicodedata.normalize("NFKD", text)
        text = "".join(c for c in folded if not unicodedata.combining(c))
    return [_stem(word) for word in _WORD.findall(_POSSESSIVE.sub("", text.casefold()))]


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    if word[0].isdigit():
        return word.replace(",", "")
    if len(word) < 4 or word[-1] != "s" or word[0] == ".":
        return word
    if word.endswith("ies") and word[-4] not in "ea":
        return word[:-3] + "y"
    if word.endswith("es") and word[-3] not in "aeo":
        return word[:-1]
    return word if word[-2] in "us" or word.endswith("es") else word[:-1]


def content_words(text: str) -> list[str]:
    """The distinct words of a query that carry meaning, sorted; all of them when none does."""
    found = set(words(text))
    return sorted(found - _STOP or found)


@lru_cache(maxsize=1 << 12)
def sentences(text: str) -> tuple[str, ...]:
    """The sentences of `text` in order, each stripped, none empty."""
    found: list[str] = []
    for line in text.split("\n"):
        start = 0
        for end in _END.finditer(line):
            if _ABBREVIATION.search(line[max(start, end.start() - 10) : end.start()]):
                continue
            found.append(line[start : end.end()].strip())
            start = end.end()
        found.append(line[start:].strip())
    return tuple(sentence for sentence in found if sentence)


def best_sentences(query: str, candidates: Sequence[str], limit: int) -> list[str]:
    """The at most `limit` candidates most relevant to `query`, in their own order.

    A candidate's relevance is the sum, over the query's words it holds, of how rare the word is among the candidates.
    """
    if len(candidates) <= limit:
        return list(candidates)
    wanted = content_words(query)
    held = [_word_set(candidate).intersection(wanted) for candidate in candidates]
    spread = Counter(word for hold in held for word in hold)
    rarity = {word: math.log(1 + len(candidates) / count) for word, count in spread.items()}
    scores = [sum(rarity[word] for word in sorted(hold)) for hold in held]
    ranked = sorted(range(len(candidates)), key=lambda i: (-scores[i], i))
    return [candidates[i] for i in sorted(ranked[:limit])]


@lru_cache(maxsize=1 << 14)
def _word_set(sentence: str) -> frozenset[str]:
    return frozenset(words(sentence))


def shorten(text: str, limit: int) -> str:
    """`text` on one line, cut at a word and ended with "..." when longer than `limit` characters."""
    flat = " ".join(text.split())
    if len(flat) <= limit:
        return flat
    cut = flat[: limit - 2].rsplit(" ", 1)[0][: limit - 3]
    return cut.rstrip(" ,;:.") + "..."
