//! What guest and device agree on: BAR map, doorbells, rings, commands, limits.
