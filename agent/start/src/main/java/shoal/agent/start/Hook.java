package shoal.agent.start;

/**
 * A stock method at whose entry a handler of ours is asked first.
 *
 * <p>The handler is a static method of the same name. It is given the object, if there is one, and the first
 * arguments. For a void method it returns true, for others a value, if it has done the work and the method shall return
 * at once; false or null if the stock code shall run.
 *
 * @param owner the class, with slashes
 * @param method its name
 * @param descriptor of the stock method, as the JVM writes it; one method of the class has to have it
 * @param handler the class of the handler, with slashes
 * @param passed how many arguments the handler is given
 */
record Hook(String owner, String method, String descriptor, String handler, int passed) {}
