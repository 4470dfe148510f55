"""A counter and a cache that are objects, mul a bound method."""


# ruff: noqa
class Meter:
    def multiply(self, left, right):
        global multiplications
        multiplications += 1
        return left * right


class Cache:
    def __init__(self):
        self.keys, self.values = [], []

    def keep(self, key, value):
        self.keys.append(key)
        self.values.append(value)

    def answer(self, query):
        return attend(query, self.keys, self.values)


meter = Meter()
mul = meter.multiply


def dot(u, v):
    return sum(map(meter.multiply, u, v))


def run_with_cache(xs, W, store=lambda number: number):
    cache, outputs = Cache(), []
    for token in xs:
        query, key, value = project(token, W)
        cache.keep(list(map(store, key)), list(map(store, value)))
        outputs.append(cache.answer(query))
    return outputs
