"""Queues inside other people's programs: agents, tests of transports, and steered sessions.

- `gym` registers the environment `forebay-v0` of Gymnasium. An agent observes a queue once per step
  and sets the signal probability, or the gains of a PI controller.
- `network.Network` is a whole path in virtual time, without sockets or threads. A test of a
  transport sends packets through links, queues, laws and simulated cross traffic, and gets them
  back by callbacks.
- `network.session` is one run of a scenario that waits after each sample, for a caller that steers
  the law itself.

All of them run the packet simulator, so the same scenario, seed and calls give the same
packets, bit by bit.

>>> from forebay.env.network import Network
>>> network = Network('''
... duration = "10s"
... [bottleneck]
... rate = "8Mbit/s"
... delay = "10ms"
... buffer = "100p"
... [[traffic]]
... kind = "external"
... flows = 1
... rtt = "40ms"
... [[law]]
... kind = "codel"
... ''')
>>> network.on_delivered = lambda packet: print(packet.payload)
>>> network.send(0, "source", b"hello")
>>> network.run(until_s=1.0)
b'hello'

Start reading at `network`.
"""
