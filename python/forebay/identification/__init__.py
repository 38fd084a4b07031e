"""What a queue's own samples say about the link and its flows: N, R, C, loss and the loop.

`forebay identify` stands on it: `series` reads samples, `estimate` finds the numbers with their
intervals, `response` the loop's gain over frequency.
"""
