// Owns the theme. A classic script in the head, so that the page never flashes in the wrong one.
(() => {
  const KEY = "mettle.theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const CHOICES = ["system", "light", "dark"];

  function stored() {
    try {
      const value = localStorage.getItem(KEY);
      return CHOICES.includes(value) ? value : "system";
    } catch {
      return "system";
    }
  }

  let choice = stored();

  function apply() {
    const theme = choice === "system" ? (dark.matches ? "dark" : "light") : choice;
    document.documentElement.dataset.theme = theme;
    dispatchEvent(new Event("themechange"));
  }

  dark.addEventListener("change", apply);
  apply();

  globalThis.mettleTheme = {
    get choice() {
      return choice;
    },
    next() {
      choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
      try {
        localStorage.setItem(KEY, choice);
      } catch {
        // Without storage the choice lasts as long as the page.
      }
      apply();
      return choice;
    },
  };
})();
