"""Authorization: a credential comes in, a principal with an expiry goes out."""
