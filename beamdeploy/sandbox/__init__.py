"""An emulated GPU host and a stand-in engine, for trying and testing without a GPU."""
