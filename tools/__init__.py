"""What only this project needs: generated pages, the site, the atlas."""
