"""memory: only the keys are counted"""


# ruff: noqa
def memory(tokens, layers, kv_heads, head_dim, bytes_each):
    n = tokens * layers * kv_heads * head_dim
    return n, n * bytes_each
