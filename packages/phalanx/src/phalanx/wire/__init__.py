"""What travels between processes: messages, their encoding, the handshake."""
