// Owns the question for an API key.

import { setKey } from "./api.js";
import { byId } from "./dom.js";

let asking;

// Resolves to whether a key was given. One question at a time, however many requests were refused.
export function askKey(failure) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    const field = byId("key");
    byId("key-reason").textContent = `${failure.title} It is kept until this tab is closed.`;
    field.value = "";
    dialog.returnValue = "";
    const given = (event) => {
      event.preventDefault();
      if (field.value.trim()) dialog.close("given");
    };
    const cancel = () => dialog.close("");
    byId("key-form").addEventListener("submit", given);
    byId("key-cancel").addEventListener("click", cancel);
    dialog.addEventListener("close", () => {
      byId("key-form").removeEventListener("submit", given);
      byId("key-cancel").removeEventListener("click", cancel);
      const isGiven = dialog.returnValue === "given";
      if (isGiven) setKey(field.value.trim());
      field.value = "";
      asking = undefined;
      resolve(isGiven);
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}
