"""Help for the start: a scenario to begin with, the meaning of a name, and what to cite.

- `starter` writes a scenario for `forebay init`: of a link whose rate and RTT are known, of a line
  such as DSL or cable, or of the qdisc that a router has.
- `explain` finds the declaration of a key, parameter, option, law, sender or metric for
  `forebay explain`, whatever part of its name one remembers.
- `cite` collects the papers behind laws, files and results for `forebay cite`.

All three are made of what other rooms declare: `explain.entries` derives its list from the
registries of laws and queues, the keys of the scenario reader and the options of the commands.

>>> from forebay.guide import explain
>>> explain.find("min_rto")[0].path
'traffic.min_rto'

Start reading at `explain.entries`.
"""
