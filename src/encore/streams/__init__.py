"""Kinds of stream: how a data set is laid out in time, one kind a file."""
