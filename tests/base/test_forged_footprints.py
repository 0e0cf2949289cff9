"""Links made to collide with a page: what was forged against a common hash does nothing to keyed footprints.

MurmurHash3 takes in blocks of two words, each through a mixing that can be undone. So the last words of a text can be computed
from the hash that is wanted, and one tries until they are characters that a URL may have: 40 s each for those here, in Python.
Without a key, any page could be made "known" by a stranger's link before it is seen.
"""

from __future__ import annotations

import mmh3
import numpy as np

from shepherd import urls

SEED = 0x5348  # of our own checksums, which are not secret
PAGE = "/?page=1&title=about-the-sheep-on-the-hill-today"
FORGED = (
    "/?page=1&title=aI7A?6.4h~x}oKt-9W}Xpuh.FL_oD[d2r",
    "/?page=1&title=a0weY3@qgavWE(;aNXe8TN34xL)_Xf^{;",
    "/?page=1&title=aH)3oPiAU~+1=p0U|*x!*,(N{mj|z&CP&",
    "/?page=1&title=aLu6W0&1&J}=9AT4@9rM[3ls2|^7}.T3&",
    "/?page=1&title=a6m0^p|w_ds^iPc(;5.Z)*L^,42T;;*Wr",
    "/?page=1&title=aUth=|h&1aA0mJ.:`({!3wn&vaHr}Bn6+",
)
KEYS = [bytes([n]) * urls.KEY_BYTES for n in range(100)]


def test_links_forged_for_a_common_hash_have_footprints_of_their_own() -> None:
    for path in FORGED:
        assert mmh3.hash64(path, SEED) == mmh3.hash64(PAGE, SEED), "it was to collide"
        assert urls.parse(f"http://a.example{path}").path == path, "no page could link to it"
    for key in KEYS:
        half = urls.Footprints(key).half
        assert len({half(path) for path in (PAGE, *FORGED)}) == 1 + len(FORGED)


def test_random_links_do_not_collide_under_one_key_or_two(crash_sweep: bool) -> None:
    links = 5_000_000 if crash_sweep else 100_000
    columns = [
        np.frombuffer(urls.Footprints(key).halves(b"/page/%d" % n for n in range(links)), "<u8") for key in (KEYS[0], KEYS[1])
    ]
    assert len(np.unique(np.concatenate(columns))) == 2 * links
