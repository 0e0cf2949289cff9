"""shepherd.config against cf/shepherd.toml, and every way a configuration can be wrong."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest

from shepherd.config import Config, examine, find_cf, find_db, load
from shepherd.config.places import BY_DATABASE, BY_DEFAULT, BY_ENVIRONMENT, BY_OPTION
from shepherd.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "cf" / "shepherd.toml"
DEFAULTS = dataclasses.asdict(Config())
KEYS = {(section, key) for section, table in DEFAULTS.items() if section != "directory" for key in table}


def configure(directory: Path, text: str) -> Config:
    (directory / "shepherd.toml").write_text(text, encoding="utf-8")
    return load(directory)


def uncommented(text: str) -> str:
    return re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE)


def keys_of(text: str) -> set[tuple[str, str]]:
    return {(section, key) for section, table in tomllib.loads(text).items() for key in table}


def test_shipped_file_changes_nothing() -> None:
    assert load(SHIPPED.parent) == Config(directory=SHIPPED.parent)


def test_shipped_file_uncommented_is_exactly_the_defaults(tmp_path: Path) -> None:
    text = uncommented(SHIPPED.read_text(encoding="utf-8"))
    assert keys_of(text) == KEYS
    assert configure(tmp_path, text) == Config(directory=tmp_path)


def test_every_key_of_the_shipped_file_is_explained() -> None:
    for line in SHIPPED.read_text(encoding="utf-8").splitlines():
        if re.match(r"# \w+ = ", line):
            assert re.search(r"\S +# \S", line[2:]), f"no meaning given: {line}"


def test_missing_file_means_defaults(tmp_path: Path) -> None:
    assert load(tmp_path) == Config(directory=tmp_path)


def test_values_in_the_file_replace_defaults(tmp_path: Path) -> None:
    config = configure(tmp_path, '[politeness]\ndelay_s = 1\n[network]\nallow = ["127.0.0.0/8"]\nstatic = "hosts"\n')
    assert config.politeness.delay_s == 1.0
    assert isinstance(config.politeness.delay_s, float)
    assert config.network.allow == ("127.0.0.0/8",)
    assert config.static_path == tmp_path / "hosts"
    assert config.fetch == Config().fetch


@pytest.mark.parametrize("server", ["127.0.0.1", "127.0.0.1:5353", "::1", "[::1]:53"])
def test_a_nameserver_is_an_address_with_or_without_a_port(tmp_path: Path, server: str) -> None:
    assert configure(tmp_path, f"[network]\nnameservers = ['{server}']\n").network.nameservers == (server,)


@pytest.mark.parametrize("proxy", ["http://proxy.example:3128", "http://[::1]:80/", "socks5://127.0.0.1:1080"])
def test_a_proxy_is_accepted(tmp_path: Path, proxy: str) -> None:
    assert configure(tmp_path, f"[network]\nproxy = '{proxy}'\n").network.proxy == proxy


def test_user_agent_carries_the_contact(tmp_path: Path) -> None:
    config = configure(tmp_path, '[identity]\nname = "sheep"\ncontact = "https://example.org/bot"\n')
    assert re.fullmatch(r"sheep/[\d.]+ \(\+https://example\.org/bot\)", config.user_agent)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("[politeness]\ndelay_s = 4294968\n", "[politeness] delay_s", id="delay_that_no_column_holds"),
        pytest.param("[fetch]\ndecoded_bytes = 200000000\n", "[fetch] decoded_bytes", id="body_that_no_message_holds"),
        pytest.param("[fetch]\nin_flight = 5000000000\n", "[fetch] in_flight", id="credits_beyond_32_bits"),
        pytest.param("[politness]\n", "[politness]", id="unknown_section"),
        pytest.param("[politeness]\ndelay = 1\n", "[politeness] delay:", id="unknown_key"),
        pytest.param("politeness = 1\n", "politeness must be a section", id="section_is_a_value"),
        pytest.param("[politeness]\ndelay_s = 'ten'\n", "[politeness] delay_s", id="text_for_number"),
        pytest.param("[politeness]\nmax_backoff = 1.5\n", "[politeness] max_backoff", id="fraction_for_whole_number"),
        pytest.param("[plan]\nreap_s = true\n", "[plan] reap_s", id="truth_for_number"),
        pytest.param("[politeness]\ndelay_s = true\n", "[politeness] delay_s", id="truth_for_fraction"),
        pytest.param("[fetch]\nverify_tls = 1\n", "[fetch] verify_tls", id="number_for_truth"),
        pytest.param("[identity]\nname = 7\n", "[identity] name", id="number_for_text"),
        pytest.param("[network]\nallow = '10.0.0.0/8'\n", "[network] allow", id="text_for_list"),
        pytest.param("[network]\nallow = [10]\n", "[network] allow", id="list_of_numbers"),
        pytest.param("[politeness]\ndelay_s = -0.5\n", "[politeness] delay_s", id="negative_fraction"),
        pytest.param("[select]\ngathered = -1\n", "[select] gathered", id="negative_number"),
        pytest.param("[store]\ncompress = 'gzip'\n", "[store] compress", id="unknown_compression"),
        pytest.param("[store]\nkeep_states = 0\n", "[store] keep_states", id="keeping_no_state"),
        pytest.param("[store]\nsegment_bytes = 1000\n", "[store] segment_bytes", id="tiny_segments"),
        pytest.param("[store]\nsegment_bytes = 4294967296\n", "[store] segment_bytes", id="segments_beyond_the_oid"),
        pytest.param("[store]\npartition_rows = 0\n", "[store] partition_rows", id="empty_partitions"),
        pytest.param("[select]\nsite_soft = 9\nsite_hard = 8\n", "[select] site_hard", id="hard_limit_below_soft"),
        pytest.param("[select]\nhard_factor = 0\n", "[select] hard_factor", id="hard_limit_of_nothing"),
        pytest.param("[select]\nmost_lost = 101\n", "most_lost", id="more_lost_than_there_is"),
        pytest.param("[select]\noptimism = 100001\n", "[select] optimism", id="a_thousand_times_too_optimistic"),
        pytest.param("[section_bonus]\npdf = 65536\n", "[section_bonus]", id="bonus_above_all_weights"),
        pytest.param("[fetch]\ndecoded_bytes = 1\n", "[fetch] decoded_bytes", id="decoded_limit_below_raw"),
        pytest.param("[reap]\nworkers = 0\n", "[reap] workers", id="no_workers"),
        pytest.param("[reap]\nworkers = 1001\n", "[reap] workers", id="more_workers_than_a_reapd_has"),
        pytest.param("[fetch]\nin_flight = 0\n", "[fetch] in_flight", id="nothing_in_flight"),
        pytest.param("[merge]\ninsert_weight = 65536\n", "[merge]", id="weight_over_16_bits"),
        pytest.param("[plan]\nimportant_weight = 65536\n", "[plan] important_weight", id="important_weight_over_16_bits"),
        pytest.param("[network]\nallow = ['127.0.0.1/8']\n", "[network] allow", id="range_with_host_bits"),
        pytest.param("[network]\nallow = ['localhost']\n", "[network] allow", id="range_that_is_a_name"),
        pytest.param("[fetch]\nmin_tls = '1.4'\n", "[fetch] min_tls", id="tls_of_the_future"),
        pytest.param("[fetch]\nmemory_bytes = 1000\n", "[fetch] memory_bytes", id="memory_for_nothing"),
        pytest.param("[reap]\nworker_bytes = 1000000\n", "[reap] worker_bytes", id="process_without_memory"),
        pytest.param("[reap]\nreapers = ['reaper1:4444']\n", "[reap] reapers", id="reaper_without_scheme"),
        pytest.param("[reap]\nreapers = ['unix:/a', 'fd:3']\n", "[reap] reapers", id="reaper_at_a_descriptor"),
        pytest.param("[reap]\nreapers = ['tls:reaper1:4444']\n", "[reap] keys", id="reaper_elsewhere_without_keys"),
        pytest.param("[network]\nproxy = 'proxy:3128'\n", "[network] proxy", id="proxy_without_scheme"),
        pytest.param("[network]\nproxy = 'https://proxy:3128'\n", "[network] proxy", id="proxy_of_another_kind"),
        pytest.param("[network]\nnameservers = ['dns.example']\n", "[network] nameservers", id="nameserver_by_name"),
        pytest.param("[network]\nnameservers = ['127.0.0.1:0']\n", "[network] nameservers", id="nameserver_on_port_0"),
        pytest.param("[network]\nnameservers = ['127.0.0.1:65536']\n", "[network] nameservers", id="nameserver_beyond_ports"),
        pytest.param("[politeness\n", "not valid TOML", id="broken_toml"),
    ],
)
def test_impossible_configuration_names_file_and_key(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "shepherd.toml"))
    assert named in message
    assert caught.value.exit_status == 2


def test_unknown_key_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compress, keep_journals, keep_states, partition_rows, segment_bytes"):
        configure(tmp_path, "[store]\nsegments = 1\n")


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_bytes(b"[identity]\nname = '\xff'\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_option_beats_environment_beats_default_for_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHEPHERD_DB", raising=False)
    assert find_db(None) == Path("db")
    monkeypatch.setenv("SHEPHERD_DB", "elsewhere")
    assert find_db(None) == Path("elsewhere")
    assert find_db(Path("here")) == Path("here")


def test_option_beats_environment_beats_the_databases_own_configuration_beats_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SHEPHERD_CF", raising=False)
    assert find_cf(None, tmp_path) == (Path("cf"), BY_DEFAULT)
    (tmp_path / "cf").mkdir()
    assert find_cf(None, tmp_path) == (tmp_path / "cf", BY_DATABASE)
    monkeypatch.setenv("SHEPHERD_CF", "elsewhere")
    assert find_cf(None, tmp_path) == (Path("elsewhere"), BY_ENVIRONMENT)
    assert find_cf(Path("here"), tmp_path) == (Path("here"), BY_OPTION)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("# a comment\n[plan]\n\nreap_s = 'x'\n", 4, id="key"),
        pytest.param("[plan]\nreap_s = 1\n[select]\nreap_s = 1\n", 4, id="key_of_the_same_name_in_another_section"),
        pytest.param("\n[plam]\nreap_s = 1\n", 2, id="section"),
        pytest.param("plan.reap_s = 'x'\n", 1, id="dotted_key"),
        pytest.param("[plan]\nreap_s =\n", 2, id="broken_toml"),
        pytest.param("[select]\nsite_hard = 5\n", 2, id="impossible_beside_a_default"),
    ],
)
def test_complaint_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'shepherd.toml'}, line {line}: ")


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="and 2 more"):
        configure(tmp_path, "[plan]\nreap = 1\nreap_s = 'x'\n[stroe]\n")
    _config, complaints = examine(tmp_path)
    assert [complaint.partition(": ")[2].partition(":")[0] for complaint in complaints] == [
        "[plan] reap",
        "[plan] reap_s",
        "[stroe]",
    ]


def test_misspelt_key_is_answered_with_the_one_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[store\] keep_state: unknown key; did you mean keep_states\?"):
        configure(tmp_path, "[store]\nkeep_state = 1\n")


def test_disks_of_many_terabytes_can_be_named(tmp_path: Path) -> None:
    assert configure(tmp_path, "[cleanup]\nsize_bytes = 50_000_000_000_000\n").cleanup.size_bytes == 50 * 10**12
