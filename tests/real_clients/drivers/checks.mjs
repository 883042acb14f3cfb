// One JSON line for each check, in order; a check that fails does not keep the later ones from running.
export async function check(name, body) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("no end in 60 s")), 60_000);
  });
  try {
    await Promise.race([body(), late]);
    console.log(JSON.stringify({ check: name }));
  } catch (error) {
    console.log(JSON.stringify({ check: name, error: String(error?.stack ?? error) }));
  } finally {
    clearTimeout(timer);
  }
}
