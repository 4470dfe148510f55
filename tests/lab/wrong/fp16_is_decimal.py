"""to_fp16: that is 3 decimal places: half precision keeps 11 significant bits"""


# ruff: noqa
def to_fp16(number):
    return round(number, 3)
