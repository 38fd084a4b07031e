"""What a design tells: its reasons, its drawings, its files for other tools."""
