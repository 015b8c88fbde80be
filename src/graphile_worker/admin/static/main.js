// The browser's part, one module per subject. Pages work without it.
document.documentElement.classList.add("js");
