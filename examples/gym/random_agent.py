"""An agent that knows nothing: what any other has to beat."""

import gymnasium

import forebay.env.gym

env = gymnasium.make(forebay.env.gym.ENVIRONMENT, action="gains")
env.action_space.seed(1)
env.reset(seed=1)
total, steps, over = 0.0, 0, False
while not over:
    _, reward, _, over, info = env.step(env.action_space.sample())
    total += reward
    steps += 1
print(f"random gains: mean reward {total / steps:.3f} over {steps} steps")
