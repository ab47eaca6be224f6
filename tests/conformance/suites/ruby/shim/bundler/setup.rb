# Stands for Bundler: the gems are those of the system.
