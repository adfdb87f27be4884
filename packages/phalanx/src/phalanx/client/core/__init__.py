"""What every client decides, without sockets: whom it believes, and which member it asks."""
