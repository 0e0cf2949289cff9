"""The prose of the toy web: farm names, titles and plain English sentences about sheep, drawn from short lists.

Pages are put together from a stock of blocks, each known plain and compressed, so that a page of any size costs little more than
copying: the toy web must never be what a benchmark waits for.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

from toyweb.draw import Draw

TOPICS = ("flock", "fields", "shearing", "lambing", "wool", "dogs", "hedges", "market", "weather", "barn", "cheese", "paths")

_FARM_FIRST = ("Alder", "Black", "Briar", "Clover", "Cold", "Fern", "Fox", "Green", "Hazel", "High", "Long", "Marsh", "Oak")
_FARM_LAST = ("beck", "bridge", "combe", "croft", "dale", "fell", "field", "ford", "garth", "ham", "hurst", "ley", "mere")
_FARM_KIND = ("Farm", "Fold", "Grange", "Hill", "Pastures", "Steading")

# A pattern's letters: A the nature of a creature, S a creature, P a person, G the nature of a place, L a place, T a thing,
# W when, M what a creature does at a place, D what a person does with a thing.
_LISTS: dict[str, tuple[str, ...]] = {
    "A": ("old", "young", "quiet", "restless", "hungry", "patient", "curious", "lame", "shaggy", "grey", "dappled", "stubborn"),
    "S": ("ewe", "ram", "lamb", "wether", "sheepdog", "collie", "pony", "goose", "bellwether", "yearling", "stray"),
    "P": ("shepherd", "shearer", "drover", "farmer", "weaver", "neighbour", "vet", "boy", "miller", "woman from the next farm"),
    "G": ("steep", "narrow", "green", "cold", "muddy", "stony", "open", "hollow", "level", "icy", "sunny"),
    "L": ("gate", "stone wall", "hedge", "sheepfold", "brook", "orchard", "hill", "lane", "barn", "common", "bridge"),
    "T": ("sack of wool", "bale of hay", "block of salt", "fleece", "crook", "bell", "lantern", "tally stick", "bucket", "rope"),
    "W": ("before the rain", "at first light", "after the thaw", "in early March", "when the wind turns", "on market days"),
    "M": ("waits by", "looks past", "crosses", "grazes behind", "lies down near", "runs towards", "comes back to", "avoids"),
    "D": ("counts", "carries", "mends", "forgets", "sells", "hides", "borrows", "weighs", "looks for", "keeps"),
}
_PATTERNS = (
    "The A S M the L W .",
    "The P D the T W .",
    "Nobody at the L D a T W .",
    "W , a A S M the L .",
    "The P and the A S know the way to the L .",
    "If the S M the L , the P D the T .",
    "The P says that a A S is worth more than a T .",
    "There is a G path from the L to the L , and the S M it W .",
    "What the P D W is the T .",
    "The A S never M the L ; the A one always does.",
    "Past the L the ground is G , so the P D a T first.",
    "Ask the P at the L about the A S .",
)
_SPLIT = tuple(tuple(pattern.split()) for pattern in _PATTERNS)
_STOCK = 8192  # different sentences: enough for pages to differ, few enough to be remembered

BLOCKS = 512
_BLOCK_BYTES = 1000

_HEADINGS = (
    "Notes on the {}",
    "The {} this year",
    "How we keep the {}",
    "A word about {}",
    "{}, a short history",
    "Our {} in short",
)


@lru_cache(maxsize=_STOCK)
def _sentence(number: int) -> str:
    draw = Draw("sentence", number)
    words: list[str] = []
    for word in draw.pick(_SPLIT):
        if word in ",;.":
            words[-1] += word
        else:
            words.append(draw.pick(_LISTS[word]) if word in _LISTS else word)
    for index, word in enumerate(words[:-1]):
        if word == "a" and words[index + 1][0] in "aeiou":
            words[index] = "an"
    return _capital(" ".join(words))


def sentence(draw: Draw) -> str:
    """One grammatical, if idle, sentence."""
    return _sentence(draw.below(_STOCK))


def paragraph(draw: Draw) -> str:
    """Three to eight sentences."""
    return " ".join(sentence(draw) for _ in range(3 + draw.below(6)))


@dataclass(frozen=True)
class TextBlock:
    """Some paragraphs as HTML. `packed` is a piece of a raw deflate stream that stands anywhere in one."""

    plain: bytes
    packed: bytes


@lru_cache(maxsize=BLOCKS)
def block(number: int) -> TextBlock:
    draw = Draw("block", number)
    plain = b"" if number % 4 else b"<h2>" + sentence(draw).encode() + b"</h2>\n"
    note = b'<p class="note">' if number % 3 == 0 else b"<p>"
    while len(plain) < _BLOCK_BYTES:
        plain += note + paragraph(draw).encode() + b"</p>\n"
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return TextBlock(plain, packer.compress(plain) + packer.flush(zlib.Z_FULL_FLUSH))


def farm(draw: Draw) -> str:
    """The name of a site, such as `Briarfield Grange`."""
    return f"{draw.pick(_FARM_FIRST)}{draw.pick(_FARM_LAST)} {draw.pick(_FARM_KIND)}"


def heading(draw: Draw, path: str) -> str:
    """The title of a page: about its topic, or else what its path says."""
    *_, section, name = path.split("/")
    words = (name or section).partition(".")[0].partition("?")[0].replace("-", " ")
    topic = next((topic for topic in (words.partition(" ")[0], section) if topic in TOPICS), "")
    return _capital(draw.pick(_HEADINGS).format(topic) if topic else words)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
