"""From cores to matrices over the public domain."""
