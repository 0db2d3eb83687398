import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

/**
 * Runs one Elasticsearch node until it is told to stop: {@code EsNode HOME CONFIG [attached]}.
 *
 * <p>HOME holds the modules, CONFIG the settings of the node. An attached node also stops when its standard input
 * ends, and so never outlives the process that started it.
 */
public final class EsNode {
  public static void main(String[] arguments) {
    try {
      start(Path.of(arguments[0]), Path.of(arguments[1]));
      if (arguments.length > 2) {
        while (System.in.read() >= 0) {}
        System.exit(0);
      }
      new CountDownLatch(1).await();
    } catch (Throwable error) {
      error.printStackTrace();
      System.err.println("[ERROR] " + error);
      // Threads of a node that started by half would keep the process alive.
      System.exit(1);
    }
  }

  private static void start(Path home, Path config) throws Exception {
    // Logging comes first: whatever reads settings logs, and would configure it otherwise.
    LogConfigurator.registerErrorListener();
    LogConfigurator.configureESLogging();
    Settings base = Settings.builder().put("path.home", home.toString()).build();
    Environment environment = InternalSettingsPreparer.prepareEnvironment(base, Map.of(), config, () -> "node");
    LogConfigurator.setNodeName(Node.NODE_NAME_SETTING.get(environment.settings()));
    LogConfigurator.configure(environment, true);
    PluginsLoader loader =
        PluginsLoader.createPluginsLoader(
            PluginsLoader.loadModulesBundles(environment.modulesDir()),
            PluginsLoader.loadPluginsBundles(environment.pluginsDir()),
            Map.of());
    Node node = new Node(environment, loader);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
    node.start();
  }

  private static void close(Node node) {
    try {
      node.close();
    } catch (Exception error) {
      System.err.println("[ERROR] The node did not close in order: " + error);
    }
  }
}
