true -- any priority
