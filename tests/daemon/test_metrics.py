"""What Prometheus is told, as its own parser reads it."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from ospbridge.cli.dashboard import dashboard
from ospbridge.daemon import metrics, metrics_server
from ospbridge.daemon.metrics import METRICS, Look
from ospbridge.daemon.notifying import Overlook
from ospbridge.daemon.relay.link import Upstream
from ospbridge.daemon.settings import Feeding
from ospbridge.hub.status import STEP_BOUNDS, AgentStatus, LaunchStatus, StatusReply
from ospbridge.interface import Endpoint
from ospbridge.observe.recent import Recent
from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.tls import StreamAddress
from tests.daemon.running import LocalDaemon, free_port, seat_of, until

NEEDED = "it is not installed: pip install 'ospbridge[metrics]'"
pytest.importorskip("h11", reason=NEEDED)
prometheus_client = pytest.importorskip("prometheus_client", reason=NEEDED)
parser = pytest.importorskip("prometheus_client.parser", reason=NEEDED)


pytestmark = pytest.mark.loopback
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
GRAFANA = ROOT / "docs" / "grafana" / "ospbridge.json"
ANYWHERE = Endpoint("127.0.0.1", 0)
AGENT = 'one "and" \\only'


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    host, _, path = url.removeprefix("http://").partition("/")
    with closing(http.client.HTTPConnection(host, timeout=10)) as connection:
        connection.request(method, f"/{path}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read().decode()


def line_of(daemon: LocalDaemon, event: str) -> dict[str, Any]:
    until(lambda: daemon.lines(event))
    (line,) = daemon.lines(event)
    return line


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[LocalDaemon]:
    # An upstream that nobody listens at: what is told of it is told all the same.
    upstream = Upstream(address=StreamAddress(Endpoint("127.0.0.1", free_port())), unannotated=True)
    with (
        UdpSimulator(SyntheticWorld(1, 1, 0, names=[AGENT]), port=0, profile=DOCUMENT) as simulator,
        LocalDaemon(
            simulator.address,
            companions=[metrics_server.metrics_server(ANYWHERE)],
            feedings=[Feeding(upstream)],
            record=tmp_path / "recorded",
        ) as running,
    ):
        yield running


@pytest.fixture
def url(daemon: LocalDaemon) -> str:
    return str(line_of(daemon, "metrics open")["url"])


def place(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    return host, int(port)


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


@pytest.mark.usefixtures("daemon")
def test_prometheus_reads_what_a_daemon_counted(url: str) -> None:
    with closing(seat_of(AGENT)) as seat:
        for _ in range(2):
            seat.reset(1)
            for _ in range(5):
                seat.step(np.zeros(1, np.float32))
        status, kind, text = get(url)
    assert status == 200
    assert kind.startswith("text/plain; version=")
    found = families(text)
    assert [metric.shown for metric in METRICS if metric.name not in found] == []

    def only(name: str) -> Any:
        (sample,) = found[name].samples
        return sample

    assert only("ospbridge_simulator_joined").value == 1
    assert only("ospbridge_steps").name == "ospbridge_steps_total"
    assert only("ospbridge_steps").value >= 10
    length = only("ospbridge_episode_steps")
    assert (length.labels["agent"], length.value) == (AGENT, 5)
    assert only("ospbridge_upstream_connected").value == 0
    buckets = [s for s in found["ospbridge_step_seconds"].samples if s.name.endswith("_bucket")]
    assert [float(s.labels["le"]) for s in buckets] == [*STEP_BOUNDS, float("inf")]
    values = [s.value for s in buckets]
    assert values == sorted(values)
    assert values[-1] == 10
    codes = {s.labels["code"] for s in found["ospbridge_datagrams"].samples}
    assert {"INIT_COMMUNICATION", "NEXT_SIMULATION_STEP", "NEXT_SIMULATION_STEP_COMPLETED"} <= codes
    assert found["process_resident_memory_bytes"].samples[0].value > 1e6


def test_other_requests_are_refused(url: str) -> None:
    root = url.removesuffix("metrics")
    assert [get(root)[0], get(f"{root}secret")[0]] == [200, 404]
    assert [get(url, method)[0] for method in ("POST", "HEAD")] == [405, 405]
    for request in (b"\x00\xff\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 100_000):
        with socket.create_connection(place(url), timeout=10) as sock:
            sock.sendall(request)
            answer = sock.recv(64)
            assert not answer or answer.startswith(b"HTTP/1.1 4"), answer
    assert get(url)[0] == 200


def test_at_a_loopback_address_a_name_that_an_attacker_has_resolve_to_this_host_is_not_answered(
    url: str,
) -> None:
    for ours in ("localhost:9464", "127.0.0.1", "[::1]:9464", socket.gethostname()):
        assert get(url, Host=ours)[0] == 200
    for path in (url, url.removesuffix("metrics")):
        status, _, told = get(path, Host="evil.example:9464")
        assert status == 403
        assert "IP address" in told
        assert "ospbridge_" not in told
    with socket.create_connection(place(url), timeout=10) as sock:
        sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert sock.recv(64).startswith(b"HTTP/1.1 200")


def test_a_host_that_asks_for_nothing_keeps_no_other_host_from_asking(
    url: str,
) -> None:
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(place(url), 5, source_address=("127.0.0.2", 0)))
            for _ in range(metrics_server.MOST_AT_ONCE)
        ]
        assert get(url)[0] == 200
        # It gives way at once, not only when its time is over.
        assert silent[0].recv(1) == b""


def test_a_taken_address_is_told_and_the_daemon_goes_on(document: UdpSimulator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics = metrics_server.metrics_server(Endpoint("127.0.0.1", taken.getsockname()[1]))
        with LocalDaemon(document.address, companions=[metrics]) as daemon:
            line = line_of(daemon, "metrics are not served")
            assert line["level"] == "warning"
            assert "in use" in line["reason"]
            assert "--metrics" in line["hint"]
            assert daemon.status().ready


def test_they_ask_for_no_token_also_beside_a_dashboard_that_does(
    document: UdpSimulator, tmp_path: Path
) -> None:
    pytest.importorskip("hypercorn", reason="hypercorn is not installed: pip install 'ospbridge[dashboard]'")
    token = tmp_path / "token"
    token.write_text("a-token-of-some-length")
    token.chmod(0o600)
    companions = [metrics_server.metrics_server(ANYWHERE), dashboard(ANYWHERE, Recent(), token=token)]
    with LocalDaemon(document.address, companions=companions) as daemon:
        assert get(line_of(daemon, "metrics open")["url"])[0] == 200
        assert get(line_of(daemon, "dashboard open")["url"])[0] == 401


# --- without a daemon --------------------------------------------------------------------------------------------


def status_of(agents: list[AgentStatus]) -> StatusReply:
    return StatusReply(*(True, "sim:1", "joined", "nerd", agents, 1, 2, 3, 4.0, "0", 5))


@pytest.mark.parametrize("pid, runs", [(7, 1), (None, 0)])
def test_a_launched_simulator_is_told_of(pid: int | None, runs: int) -> None:
    told = msgspec.structs.replace(status_of([]), launched=LaunchStatus("NerdSim", pid, 3, "/log"))
    others = msgspec.structs.replace(told, launched=None, name="other")
    look = cast(Look, SimpleNamespace(statuses=[told, others]))
    read = {metric.shown: list(metric.read(look)) for metric in METRICS if "launched" in metric.help}
    assert read["ospbridge_simulator_running"] == [(("sim:1",), runs)]
    assert read["ospbridge_simulator_restarts_total"] == [(("sim:1",), 3)]


def test_labels_are_short_and_visible_and_no_two_agents_have_the_same() -> None:
    names = ["A" * 20_000 + end + "A" * 20_000 for end in ("left", "right")] + ["e\x1b[2J\u202e"]
    told = status_of([AgentStatus(name, "free", returns=[1.0], lengths=[5]) for name in names])
    overlook = cast(Overlook, SimpleNamespace(conductors=[], relays=[], statuses=lambda: [told]))
    text = prometheus_client.generate_latest(metrics.registry(overlook)).decode()
    assert all(len(line) < 1000 and line.isprintable() for line in text.splitlines())
    labels = {sample.labels["agent"] for sample in families(text)["ospbridge_episode_steps"].samples}
    assert len(labels) == 3


def test_every_metric_is_documented_as_it_is() -> None:
    row = r"^\| `(ospbridge_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$"
    assert re.findall(row, PAGE.read_text(), re.MULTILINE) == [
        (metric.shown, metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.help)
        for metric in METRICS
    ]


def test_the_dashboard_for_grafana_and_the_queries_of_the_page_ask_for_what_there_is() -> None:
    names = {metric.shown for metric in METRICS} | {"ospbridge_step_seconds_bucket"}
    panels = json.loads(GRAFANA.read_text())["panels"]
    queries = PAGE.read_text().partition("## Useful queries")[2]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    asked += re.findall(r"^\| [A-Z].*?\? \| `(.*?)` \|$", queries, re.MULTILINE)
    assert len(asked) > 20
    for expression in asked:
        found = set(re.findall(r"\bospbridge_\w+", expression))
        assert found <= names, expression
        assert found or "process_" in expression
    assert len({panel["id"] for panel in panels}) == len(panels)
