// What the modules of the console use of htm-preact.js.
export type Node = object | string | number | boolean | null | undefined;
export function html(strings: TemplateStringsArray, ...values: unknown[]): any;
export function render(node: any, parent: Element): void;
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
export function useRef<T>(initial: T | null): { current: T | null };
