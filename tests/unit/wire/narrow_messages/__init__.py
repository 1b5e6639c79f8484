"""Message classes that keep few fields of the schema, to test what happens to the others.

A module's name is the API, a class's name the schema's, exactly as in `martlet.wire.messages`.
"""
