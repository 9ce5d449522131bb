"""Google Cloud over gRPC: one connection, one way to call, for all plugins that ask a Google service."""
