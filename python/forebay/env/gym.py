"""A queue as an environment of gymnasium: importing this package registers `forebay-v0`.

    import gymnasium
    import forebay.env.gym
    env = gymnasium.make("forebay-v0")

The extra `gym` of the wheel brings gymnasium; so does pip install "gymnasium>=1,<2".
"""

from __future__ import annotations

try:
    import gymnasium
except ImportError as error:
    raise ImportError('forebay.env.gym needs gymnasium: pip install "gymnasium>=1,<2"') from error

from forebay.env.aqm_env import ACTIONS, OBSERVED, AqmEnv
from forebay.env.rewards import REWARDS, Seen

__all__ = ["ACTIONS", "ENVIRONMENT", "OBSERVED", "REWARDS", "AqmEnv", "Seen"]

#: Name of the environment for `gymnasium.make`.
ENVIRONMENT = "forebay-v0"

gymnasium.register(id=ENVIRONMENT, entry_point="forebay.env.aqm_env:AqmEnv")
