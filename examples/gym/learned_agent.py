"""An agent that learns two gains by the cross-entropy method, with numpy alone.

Each generation tries a dozen pairs of gains for an episode each, and draws the next around the best
of them (Rubinstein and Kroese 2004).
"""

import argparse
import json
from pathlib import Path

import gymnasium
import numpy as np

import forebay.env.gym

POPULATION, ELITE, GENERATIONS = 12, 3, 6
#: Links over which it learns, by their flows; and other runs on which it is judged.
FLOWS, JUDGED = (10, 20, 40), (101, 102, 103)


def episode(action: np.ndarray | None, flows: int, run_seed: int) -> float:
    """Mean reward under these gains, or under random ones where they are None."""
    env = gymnasium.make(
        forebay.env.gym.ENVIRONMENT,
        action="gains",
        overrides={"traffic.0.flows": flows, "duration": "20s"},
    )
    env.action_space.seed(run_seed)
    env.reset(options={"run_seed": run_seed})
    rewards, over = [], False
    while not over:
        chosen = env.action_space.sample() if action is None else action
        _, reward, _, over, _ = env.step(chosen)
        rewards.append(reward)
    return float(np.mean(rewards))


def judged(action: np.ndarray | None) -> float:
    """Mean reward over runs that no learning has seen."""
    return float(np.mean([episode(action, flows, seed) for flows in FLOWS for seed in JUDGED]))


def learn(rng: np.random.Generator) -> np.ndarray:
    """The best action, both parts from -1 to 1."""
    mean, spread = np.zeros(2), np.full(2, 0.7)
    for generation in range(GENERATIONS):
        tried = np.clip(rng.normal(mean, spread, (POPULATION, 2)), -1.0, 1.0)
        # The same runs for all of a generation: their differences are those of the gains.
        flows, seed = FLOWS[generation % len(FLOWS)], generation + 1
        rewards = np.array([episode(action, flows, seed) for action in tried])
        best = tried[np.argsort(rewards)[-ELITE:]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.02
        print(f"generation {generation + 1}: best mean reward {rewards.max():.3f}")
    return mean


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("gains.json"), help="where the gains go")
out = parser.parse_args().out
action = learn(np.random.default_rng(1))
env = forebay.env.gym.AqmEnv(action="gains")
k_p, k_i = env.gains(action)
found = {"k_p_per_pkt": k_p, "k_i_per_pkt_s": k_i, "reward": judged(action), "random": judged(None)}
out.write_text(json.dumps(found, indent=2) + "\n")
print(f"K_P {k_p:.2e} per packet, K_I {k_i:.2e} per packet and second: {out}")
print(f"mean reward {found['reward']:.3f}; with random gains {found['random']:.3f}")
