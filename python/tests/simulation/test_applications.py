"""Voice, frames and adaptive video: what their metrics tell of a law."""

from __future__ import annotations

from pathlib import Path

from conftest import one_bottleneck, table, two_laws

import forebay

OF_TCP = {"rtt": "40ms", "packet": "1500B", "tcp": "cubic"}
SCENARIO = (
    one_bottleneck(("10s", "30s"), "5Mbit/s", "60p", delay="10ms")
    + table("traffic", kind="ftp", flows=2, **OF_TCP)
    + table("traffic", kind="voice", flows=3, rtt="40ms", start={"uniform": ["0s", "20ms"]})
    + table("traffic", kind="video", flows=1, **OF_TCP, ladder=["300kbit/s", "1Mbit/s", "2Mbit/s"])
    + two_laws("droptail", "fq-codel")
)


def test_metrics_show_the_quality_of_calls_and_video(tmp_path: Path) -> None:
    path = tmp_path / "home.toml"
    path.write_text(SCENARIO)
    result = forebay.run(path)
    behind, beside = (run.metrics for run in result.runs)
    assert behind["voice_delay_s"] > 2 * beside["voice_delay_s"]
    assert beside["voice_loss"] == 0 < behind["voice_loss"]
    assert 0 < beside["voice_jitter_s"] < 0.01
    for run in (behind, beside):
        assert 0.3e6 <= run["video_rate_bps"] <= 2e6
        assert 0 <= run["video_stalled"] < 0.5
    # A law without classes stands beside one that has some.
    assert set(result.classes["law"]) == {"fq-codel"}
