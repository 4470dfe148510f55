"""attend_grouped: heads take turns"""


# ruff: noqa
def attend_grouped(qs, Ks, Vs):
    return [attend(q, Ks[h % len(Ks)], Vs[h % len(Ks)]) for h, q in enumerate(qs)]
