"""A PI controller as an agent: it sets the probability itself, and gets what the built-in law of
the same gains gets."""

import gymnasium

import forebay
import forebay.env.gym
from forebay.env.gym import DEFAULT

#: Gains of this sample's error and of the last one's, per packet; the set-point, and the time
#: between two samples.
A, B, TARGET_PKTS, INTERVAL = 4e-4, 3.9e-4, 40, "10ms"


def episode(run_seed: int) -> tuple[float, float]:
    """Mean queue in packets and utilisation over the second half of a run."""
    env = gymnasium.make(forebay.env.gym.ENVIRONMENT, step=INTERVAL, target=f"{TARGET_PKTS}p")
    seen, _ = env.reset(options={"run_seed": run_seed})
    p = error_1 = 0.0
    over = False
    while not over:
        error = float(seen[0]) - TARGET_PKTS
        p = min(1.0, max(0.0, p + A * error - B * error_1))
        error_1 = error
        seen, _, _, over, _ = env.step([p])
    metrics = env.unwrapped.finish().metrics
    return metrics["queue_mean_pkts"], metrics["utilisation"]


law = {"kind": "pi", "target": f"{TARGET_PKTS}p", "a": A, "b": B, "interval": INTERVAL}
keys = [f"{key} = {value!r}".replace("'", '"') for key, value in law.items()]
built_in = forebay.run("\n".join([DEFAULT, "[[law]]", *keys]), seeds=1)
print("              queue, packets  utilisation")
for name, (queue_pkts, utilisation) in {
    "PI, agent": episode(1),
    "PI, built in": built_in.metrics.select("queue_mean_pkts", "utilisation").row(0),
}.items():
    print(f"{name:12}  {queue_pkts:14.2f}  {utilisation:11.4f}")
