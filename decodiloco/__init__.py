"""The method: decoupled DiLoCo."""
