"""to_fp16: that is bfloat16"""


# ruff: noqa
def to_fp16(number):
    bits = struct.unpack("I", struct.pack("f", number))[0]
    return struct.unpack("f", struct.pack("I", bits >> 16 << 16))[0]
