"""One experiment: how it is read, executed, stored and returned.

An experiment is a scenario whose laws run at every point of its sweep with every seed. This room
takes it from a file to a result:

    source ──read──▶ Experiment ──execute──▶ Execution ──▶ Result
                        │                       │
                     engine                   store

- `experiment.Experiment` is a scenario that has been read and checked: its plan, the text that was
  run, and the command that makes the same runs.
- `engines.Engine` is the protocol of the programs that make runs. The packet simulator is the
  default; the fluid model, the kernel and real links are modules of other rooms that are loaded by
  name.
- `execution.execute` makes the runs on all cores. It takes finished runs out of the store and adds
  new ones to it, so the same experiment returns at once the second time.
- `store.Store` keeps runs as Parquet files, and `store.at` opens one. A run is found by the digest
  of everything that its numbers depend on (`run_rows.configs`); `store_files` makes files appear
  whole or not at all, and `store_choice` decides which store a command uses.
- `result.Result` is what a user holds: tables of metrics and samples, comparisons of laws, figures
  and the report. `table.RunTable` computes means, intervals and tests.

Two modules check whether results can be trusted. `steady_state` warns of a window in which the
queue had not settled and of missed set-points, and `automatic_gains` designs laws with
`gains = "auto"` before a run. `descriptions` turns points and warnings into words, and `flent`
reads and writes the data files of flent.

>>> from forebay.experiment.result import run
>>> result = run("scenario.toml", laws=["pi", "codel"], seeds=5)  # doctest: +SKIP
>>> result.cell(law="pi", metric="delay_p95_s").mean  # doctest: +SKIP

Start reading at `experiment.read`, and go on with `execution.execute_all`.
"""
