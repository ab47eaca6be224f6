<?php
// Loads the client's classes and those of its tests, and keeps what newer versions of PHP advise against to itself.
error_reporting(E_ALL & ~E_DEPRECATED);
spl_autoload_register(function ($class) {
    foreach (['Basho\\Tests\\' => 'tests/', 'Basho\\' => 'src/'] as $prefix => $folder) {
        $path = $folder . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
        if (strncmp($class, $prefix, strlen($prefix)) === 0 && is_file($path)) {
            require $path;
            return;
        }
    }
});
