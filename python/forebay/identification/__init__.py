"""What a queue's own samples say about the link and its flows: N, R, C, loss and the loop.

`forebay identify` stands on it: `queue_records` reads samples, `counters` cuts them where a counter
or the clock does not grow, `estimate` finds the numbers with their intervals, and `response` the
loop's gain over frequency.
"""
