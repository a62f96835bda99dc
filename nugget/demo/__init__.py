"""The product's main job in one go, on a session that comes with Nugget: `python -m nugget.demo`."""
