package shoal.agent.start;

/**
 * A stock method at whose entry a handler of ours is asked first.
 *
 * <p>The handler is a static method of the same name. It is given the object, if there is one, and all arguments. For
 * a void method it returns true, for others a value, where it has done the work and the method shall return at once;
 * false or null where the stock code shall run.
 *
 * @param owner the class, with slashes
 * @param method its name
 * @param descriptor of the stock method, as the JVM writes it; one method of the class has to have it
 * @param handler the class of the handler, with slashes
 */
record Hook(String owner, String method, String descriptor, String handler) {}
