"""The environment of gymnasium, and its examples."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay

gymnasium = pytest.importorskip("gymnasium", reason="the extra `gym` is not installed")
from gymnasium.utils.env_checker import check_env  # noqa: E402

from forebay.env.gym import (  # noqa: E402
    DEFAULT,
    ENVIRONMENT,
    OBSERVED,
    AqmEnv,
)

EXAMPLES = Path(__file__).parents[3] / "examples" / "gym"
SHORT = {"duration": "4s"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("action", ["p", "gains"])
def test_gymnasium_accepts_it(action: str) -> None:
    check_env(gymnasium.make(ENVIRONMENT, action=action, overrides=SHORT).unwrapped)


def episode(env: AqmEnv, actions: list[list[float]], **reset: Any) -> list[list[float]]:
    """Observations and rewards of an episode; the actions in turn."""
    seen, info = env.reset(**reset)
    rows, over, n = [seen.tolist()], False, 0
    while not over:
        action = np.array(actions[n % len(actions)], dtype=np.float32)
        seen, reward, terminated, over, info = env.step(action)
        assert not terminated
        assert env.observation_space.contains(seen)
        rows.append([*seen.tolist(), reward])
        n += 1
    assert info["time_s"] == pytest.approx(4)
    with pytest.raises(RuntimeError, match="the run is at its end"):
        env.step(np.array(actions[0], dtype=np.float32))
    return rows


def test_a_seed_gives_the_same_episode() -> None:
    env = AqmEnv(overrides=SHORT)
    actions = [[0.0], [0.05], [0.01]]
    one, again, other = (episode(env, actions, seed=seed) for seed in (1, 1, 2))
    assert one == again != other
    assert len(one) == 41
    # Without a seed, the next episode is another run.
    assert episode(env, actions) != episode(env, actions)


def test_observations_are_those_of_a_run() -> None:
    """Under a probability of zero the law is DropTail, and its run the built-in one's."""
    env = AqmEnv(overrides=SHORT, step="50ms")
    rows = np.array(episode(env, [[0.0]], options={"run_seed": 3})[1:])
    law = '[[law]]\nkind = "droptail"\n'
    result = forebay.run(
        DEFAULT + law, seeds=3, overrides={**SHORT, "sample": "50ms"}, laws=["droptail"]
    )
    samples = result.samples.filter(seed=3)
    column = dict(zip(OBSERVED, rows.T, strict=False))
    assert column["queue_pkts"].tolist() == samples["queue_pkts"].to_list()
    arrivals = np.maximum(samples["arrivals"].to_numpy(), 1)
    dropped = samples["overflow_drops"].to_numpy() / arrivals
    assert column["dropped"] == pytest.approx(dropped)
    assert dropped.max() > 0
    used = 8 * samples["departed_bytes"].to_numpy() / 10e6 / 0.05
    assert column["utilisation"] == pytest.approx(used)
    assert (column["p"] == 0).all()


def test_actions_reach_the_queue() -> None:
    queues = []
    for p in (0.0, 0.02, 0.2):
        rows = np.array(episode(AqmEnv(overrides=SHORT), [[p]], options={"run_seed": 1})[20:])
        queues.append(rows[:, 0].mean())
        assert rows[:, OBSERVED.index("p")] == pytest.approx(p)
    assert all(longer > shorter for longer, shorter in pairwise(queues))


def test_gains_hold_the_queue_at_the_set_point() -> None:
    env = AqmEnv(action="gains", overrides={"duration": "20s"}, target="50p")
    low, high = env._gains.T
    action = 2 * (np.log([4e-4, 1e-3]) - low) / (high - low) - 1
    assert env.gains(action) == pytest.approx((4e-4, 1e-3))
    env.reset(options={"run_seed": 1})
    over, queue = False, []
    while not over:
        seen, _, _, over, _ = env.step(action.astype(np.float32))
        queue.append(seen[0])
    assert np.mean(queue[100:]) == pytest.approx(50, rel=0.15)


def test_rewards() -> None:
    rewards = {}
    for reward in ("power", "delay", "set_point"):
        rows = episode(AqmEnv(overrides=SHORT, reward=reward), [[0.02]], options={"run_seed": 1})
        rewards[reward] = np.array([row[-1] for row in rows[1:]])
    assert ((rewards["power"] >= 0) & (rewards["power"] <= 1)).all()
    assert (rewards["delay"] <= 0).all()
    assert (rewards["set_point"] <= 0).all()
    own = AqmEnv(overrides=SHORT, reward=lambda seen: seen.goodput_bps)
    rows = episode(own, [[0.02]], options={"run_seed": 1})
    # A step may hand over what came earlier, after a hole is filled.
    assert 7e6 < np.mean([row[-1] for row in rows[1:]]) < 10e6


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("action", "q", 'action: "q" is not valid; expected one of p, gains$'),
        ("reward", "much", 'reward: "much" is not valid; expected one of power, delay, set_point$'),
        (
            "target",
            "40",
            'target: "40" is not valid; expected a queue length such as "200p", or a ',
        ),
        ("step", "40", 'step: "40" is not valid; expected a time with its unit, such as "15ms" '),
        (
            "interval",
            "1h",
            'interval: "1h" is not valid; expected a time with its unit, .*, from 1us to 60s$',
        ),
        (
            "overrides",
            {"traffic.0.flow": 3},
            "--set: traffic.0.flow: unknown key; expected one of kind, label, flows, .* "
            r'\(did you mean "flows"\?\)$',
        ),
    ],
)
def test_settings_that_are_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(forebay.ScenarioError, match=f"^{message}"):
        AqmEnv(**{key: value})


def test_a_session_runs_any_law_in_steps(scenario: Path) -> None:
    """A law of the registry, whose probability is seen and not steered."""
    session = forebay.session(scenario, law="pi")
    steps = [session.step() for _ in range(100)]
    assert session.target_pkts == 40
    assert any(step.p > 0 for step in steps)
    with pytest.raises(RuntimeError, match="a law of its own"):
        session.hold(0.1)
    metrics = session.finish().metrics
    table = forebay.run(scenario, laws=["pi"], seeds=1, overrides={"traffic.0.flows": 5}).metrics
    assert metrics["queue_mean_pkts"] == table["queue_mean_pkts"][0]
    with pytest.raises(RuntimeError, match="at its end"):
        session.finish()


def test_a_prototype_that_fails_ends_the_session(scenario: Path) -> None:
    class Wrong:
        def on_enqueue(self, queue: Any, packet: Any) -> str:
            return "mark" if queue.now_s < 0.5 else "ecn"

    session = forebay.session(scenario, law=Wrong)
    with pytest.raises(forebay.ScenarioError, match=r"Wrong: .*on_enqueue: 'ecn' is not valid"):
        for _ in range(100):
            session.step()
    assert session.done


def example(name: str, tmp_path: Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_pi_as_agent_is_the_built_in_pi(tmp_path: Path) -> None:
    _, agent, law = example("pi_agent", tmp_path).splitlines()
    ours, theirs = (np.array(line.split()[-2:], dtype=float) for line in (agent, law))
    assert ours == pytest.approx(theirs, rel=0.02)


def test_learning_beats_chance(tmp_path: Path) -> None:
    assert "random gains: mean reward 0." in example("random_agent", tmp_path)
    example("learned_agent", tmp_path)
    found = json.loads((tmp_path / "gains.json").read_text())
    assert found["reward"] > found["random"] + 0.1
