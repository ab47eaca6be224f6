//! The protocol-buffer interface: connections, framing and request handlers.
