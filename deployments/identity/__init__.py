"""Who a request comes from: API keys and JWTs, both made into a ``RequestContext`` by ``authenticator`` (C20).

Nothing is imported here: settings need the configuration alone.
"""
