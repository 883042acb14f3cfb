"""Tools that the model may call. See `toolbox.py` for which a thread has, `calls.py` for how a call is answered."""
