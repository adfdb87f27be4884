"""How the endpoints for clients of other systems reach sockets and the grid."""
